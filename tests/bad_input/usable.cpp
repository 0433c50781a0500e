// See usable.h.
#include "bad_input/usable.h"

#include "support/plain_mpi.h"

namespace crosslane::tests {

void still_usable(const Program& program) {
  CROSSLANE_STEP("communication after the errors");
  constexpr int bytes = 100000;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  Memory out(MemoryKind::device, bytes), in(MemoryKind::device, bytes);
  out.write(pattern(mix(program.rank), out.size()));
  CROSSLANE_MPI(MPI_Sendrecv(out.data(), bytes, MPI_BYTE, right, 2, in.data(), bytes, MPI_BYTE, left, 2, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.read() == pattern(mix(left), in.size()), "from rank {}", left);
}

void meet(const Program& program) {
  for (int round = 0; round < 4; ++round) still_usable(program);
}

}  // namespace crosslane::tests
