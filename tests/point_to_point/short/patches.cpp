// Messages from many allocations in turns. See cases.h.
#include "point_to_point/short/cases.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/random.h"

#include <vector>

namespace crosslane::tests {
namespace {

constexpr int meeting_rounds = 8;

// Until rank 0 knows that rank 1 can read its memory, which it learns from answers.
void meet(Program& program, std::size_t bytes) {
  Memory out(MemoryKind::device, bytes), in(MemoryKind::device, bytes);
  for (int round = 0; round < meeting_rounds; ++round)
    CROSSLANE_MPI(MPI_Sendrecv(out.data(), static_cast<int>(bytes), MPI_BYTE, 1 - program.rank, 1, in.data(),
                               static_cast<int>(bytes), MPI_BYTE, 1 - program.rank, 1, MPI_COMM_WORLD,
                               MPI_STATUS_IGNORE));
}

}  // namespace

Directly send_patches(Program& program, std::size_t patches, int uses) {
  constexpr std::size_t bytes = 4096;
  constexpr int sets = 2;
  const int rounds = uses + 1;
  int messages = 0;
  if (program.rank < 2) meet(program, bytes);
  for (int set = 0; set < sets; ++set) {
    std::vector<Memory> own;
    for (std::size_t patch = 0; patch < (program.rank == 0 ? patches : 1); ++patch) {
      own.emplace_back(MemoryKind::device, bytes);
      own.back().write(pattern(mix(program.seed, set, patch), bytes));
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t patch = 0; patch < patches; ++patch) {
        messages += round + 1 >= uses ? 1 : 0;
        if (program.rank == 0) CROSSLANE_MPI(MPI_Send(own[patch].data(), bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
        if (program.rank != 1) continue;
        CROSSLANE_MPI(MPI_Recv(own[0].data(), bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CROSSLANE_CHECK(own[0].read() == pattern(mix(program.seed, set, patch), bytes), "set {}, round {}, patch {}",
                        set, round, patch);
      }
    }
  }
  if (program.rank >= 2) return {0, 0};
  return {messages, messages + 2 * meeting_rounds};  // MPI_Sendrecv has two buffers
}

}  // namespace crosslane::tests
