// See to_next.h.
#include "one_sided/to_next.h"

namespace crosslane::tests {

MPI_Aint address_at_next(const Program& program, const Memory& memory) {
  const int next = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  MPI_Aint mine = 0, theirs = 0;
  CROSSLANE_MPI(MPI_Get_address(memory.data(), &mine));
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(&theirs, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, &request));
  CROSSLANE_MPI(MPI_Send(&mine, 1, MPI_AINT, before, 0, MPI_COMM_WORLD));
  polite_wait(request);
  return theirs;
}

void put_to_next(const Program& program, MPI_Win window, const void* from, int bytes, MPI_Aint place) {
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Put(from, bytes, MPI_BYTE, (program.rank + 1) % program.size, place, bytes, MPI_BYTE, window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
}

}  // namespace crosslane::tests
