// CROSSLANE_ORDER=legacy: messages come behind what the program has enqueued on its default streams by then, those of another GPU than the one
// that it began with, too, whichever GPU's kernels read the message. It must not know Crosslane.
#include "support/check.h"
#include "support/linger.h"
#include "support/memory.h"
#include "support/program.h"

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int blocks = 20000, block = 12, stride = 20;  // bytes
constexpr std::size_t bytes = std::size_t{blocks} * stride;
constexpr std::byte before{9};

// Takes the default stream's time, and then writes all of it.
void write_slowly(const Memory& memory) {
  CROSSLANE_CUDA(cuLaunchHostFunc(CU_STREAM_LEGACY, [](void*) { linger(20'000); }, nullptr));
  CROSSLANE_CUDA(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory.data()), static_cast<unsigned char>(before),
                                 bytes, CU_STREAM_LEGACY));
}

std::vector<std::byte> expected(const std::vector<std::byte>& sent, bool with_gaps) {
  auto all = sent;
  for (std::size_t i = 0; with_gaps && i < bytes; ++i)
    if (i % stride >= block) all[i] = before;
  return all;
}

int run(int argc, char** argv) {
  Program program(argc, argv, "point_to_point_order");
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(blocks, block, stride, MPI_BYTE, &gaps));
  CROSSLANE_MPI(MPI_Type_commit(&gaps));
  Memory own(MemoryKind::device, bytes);
  const Device another(program.device()->ordinal() + 1);
  const Memory others(MemoryKind::device, bytes);
  if (program.rank == 0) program.device()->make_current();
  for (int round = 0; round < 12; ++round) {
    const bool with_gaps = round % 2 == 1, far = round >= 3;  // the GPU of the first ones is the one that it began with
    CROSSLANE_STEP("round {}: {}, to {} GPU", round, with_gaps ? "with gaps" : "contiguous", far ? "the other" : "its");
    const auto sent = pattern(mix(program.seed, round), bytes);
    const MPI_Datatype type = with_gaps ? gaps : MPI_BYTE;
    const int count = with_gaps ? 1 : static_cast<int>(bytes);
    polite_barrier();
    if (program.rank == 0) {
      own.write(sent);
      CROSSLANE_MPI(MPI_Send(own.data(), count, type, 1, round, MPI_COMM_WORLD));
      continue;
    }
    if (!far) program.device()->make_current();
    const Memory& memory = far ? others : own;
    write_slowly(memory);
    CROSSLANE_MPI(MPI_Recv(memory.data(), count, type, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_CUDA(cuCtxSynchronize());
    CROSSLANE_CHECK(memory.read() == expected(sent, with_gaps), "what was received");
    another.make_current();
  }
  CROSSLANE_MPI(MPI_Type_free(&gaps));
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
