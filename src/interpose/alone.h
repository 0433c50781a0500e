// Collectives of a communicator with one rank: what it sends is what it receives. It must not know any one collective.
#pragma once

#include "interpose/process.h"
#include "interpose/role.h"

namespace crosslane::interpose {

/// False, with nothing done, where the communicator has other ranks, or the call is MPI's: without GPU memory, with several memories, or arguments that
/// MPI may have its own words for. Throws what the GPU reports.
bool run_alone(const Site& site, const CollectiveCall& call);

}  // namespace crosslane::interpose
