// Collectives of communicators whose ranks share the node: described by the generated wrappers, counted on every rank, and run
// directly between GPUs where the team's verdict says so; blocking ones of other communicators are across_nodes.h's. Whatever does not go
// so, goes on as if there were no teams.
#pragma once

#include "base/function_ref.h"
#include "interpose/process.h"
#include "interpose/role.h"
#include "mpi/abi.h"

namespace crosslane::interpose {

/// Runs the call, by `otherwise` where it does not go direct: that does what the wrapper would have done.
int run_collective(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise);

/// The same of a nonblocking call, which starts it only: `request` then stands for it.
int start_collective(const Site& site, const CollectiveCall& call, MPI_Request* request,
                     base::FunctionRef<int()> otherwise);

/// The same of a call that makes a persistent one: by `otherwise`, after which each of its starts has a way of its own.
int init_collective(const Site& site, const CollectiveCall& call, MPI_Request* request,
                    base::FunctionRef<int()> otherwise);

}  // namespace crosslane::interpose
