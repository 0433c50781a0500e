// Blocking collectives on GPU memory whose ranks are on several nodes: inside the nodes over the GPUs' links, among them by messages of
// the application's own MPI. Since no rank can know what memory those of other nodes pass to a call, it is the user who says
// that they pass the same kind (CROSSLANE_MIXED), or prefers such an algorithm. It must not know how the algorithms work.
#pragma once

#include "base/function_ref.h"
#include "interpose/process.h"
#include "interpose/role.h"

namespace crosslane::interpose {

/// Of a communicator whose ranks are on several nodes. `otherwise`: MPI's route. Throws what is to be raised.
int run_across_nodes(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise);

}  // namespace crosslane::interpose
