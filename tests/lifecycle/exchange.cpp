// See exchange.h.
#include "exchange.h"

#include <vector>

namespace crosslane::tests {

void exchange(Program& program, MemoryKind kind, int count, int rounds) {
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  const auto length = static_cast<std::size_t>(count);
  Memory out(kind, length * sizeof(int)), in(kind, length * sizeof(int)), sums(kind, length * sizeof(int));
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {} with {} ints of {} memory", round, count, name(kind));
    std::vector<int> mine(length), received(length), expected(length);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      mine[at] = i + 1000 * program.rank + round;
      received[at] = i + 1000 * left + round;
      expected[at] = program.size * (i + round) + 1000 * (program.size * (program.size - 1) / 2);
    }
    out.fill(mine);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(in.data(), count, MPI_INT, left, round, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Send(out.data(), count, MPI_INT, right, round, MPI_COMM_WORLD));
    polite_wait(request);
    CROSSLANE_CHECK(in.values<int>() == received, "message from rank {}", left);
    CROSSLANE_MPI(MPI_Allreduce(out.data(), sums.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CROSSLANE_CHECK(sums.values<int>() == expected, "sums over {} ranks", program.size);
  }
}

}  // namespace crosslane::tests
