// Blocking collectives of communicators whose ranks share the node: described by the generated wrappers, counted on every rank, and
// run directly between GPUs where the team's verdict says so. Whatever is not, goes on as if there were no teams.
#pragma once

#include "base/function_ref.h"
#include "collective/shape.h"
#include "interpose/process.h"
#include "mpi/abi.h"

namespace crosslane::interpose {

/// The arguments of one call. Those that a procedure does not have stay as they are; counts and types are those of the side that is
/// significant on this rank.
struct CollectiveCall {
  const char* call;
  collective::Collective collective;
  const void* send = nullptr;
  MPI_Count send_count = 0;
  MPI_Datatype send_type{};
  void* receive = nullptr;
  MPI_Count receive_count = 0;
  MPI_Datatype receive_type{};
  MPI_Op op{};
  int root = 0;
  MPI_Comm comm{};
};

/// Runs the call, by `otherwise` where it does not go direct: that does what the wrapper would have done.
int run_collective(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise) noexcept;

/// Runs `make`, which makes a communicator from `parent` and returns MPI's code; the child is known by its name afterwards.
int make_communicator(const Site& site, MPI_Comm parent, MPI_Comm* child, base::FunctionRef<int()> make) noexcept;

}  // namespace crosslane::interpose
