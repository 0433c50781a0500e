// Collectives of a communicator with one rank: what it sends is what it receives. It must not know any one collective.
#pragma once

#include "interpose/process.h"
#include "interpose/role.h"

namespace crosslane::interpose {

/// False, with nothing done, where the communicator has other ranks, or the call is MPI's: without GPU memory, or with several memories. Throws
/// what is to be raised.
bool run_alone(const Site& site, const CollectiveCall& call);

}  // namespace crosslane::interpose
