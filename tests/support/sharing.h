// Whose kernels can run at the same time: asked of MPI and of the CUDA driver as an application would, so that tests know what
// Crosslane may do here without asking it. It must not know Crosslane.
#pragma once

#include <mpi.h>

namespace crosslane::tests {

/// Whether two ranks of the communicator have one GPU current, by its UUID, on which kernels of processes take turns: MPS is not on.
/// Collective, and needs a context; nonblocking calls on host memory.
[[nodiscard]] bool take_turns(MPI_Comm communicator);

/// Bytes from which on calls that the host can drive (all-reduce, reduce, broadcast) go direct in such a communicator, by
/// docs/collectives.md; others never do.
inline constexpr unsigned long direct_in_turns_from = 256UL << 10;

}  // namespace crosslane::tests
