// Whose kernels can run at the same time: asked of MPI and of the CUDA driver as an application would, so that tests know what
// Crosslane may do here without asking it. It must not know Crosslane.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace crosslane::tests {

/// Whether two ranks of the communicator have one GPU current, by its UUID, on which kernels of processes take turns: MPS is not on.
/// Collective, and needs a context; nonblocking calls on host memory.
[[nodiscard]] bool take_turns(MPI_Comm communicator);

/// Whether each rank has a GPU of its own current, which NVLink joins to the others' as far as the driver tells. Emulated ones may be shared.
/// Collective, and needs a context.
[[nodiscard]] bool lines_stay_whole(MPI_Comm communicator);

/// Of what a real GPU may do otherwise, in the driver's discretion.
[[nodiscard]] bool gpus_are_emulated();

/// Whether two ranks of the communicator have one GPU current. Collective, and needs a context.
[[nodiscard]] bool share_a_gpu(MPI_Comm communicator);

/// Bytes from which on calls that the host can drive (all-reduce, reduce, broadcast) go direct in such a communicator, by
/// docs/collectives.md; others never do.
inline constexpr std::size_t direct_in_turns_from = std::size_t{256} << 10;

/// How long messages with gaps between their pieces should get at most in a test of many: on a real GPU each piece may cost a call of
/// the driver, and a turn where ranks take turns. Without limit on emulated GPUs. Collective over the world, of which rank 0 says so.
[[nodiscard]] std::size_t longest_in_pieces();

}  // namespace crosslane::tests
