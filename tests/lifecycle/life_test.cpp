// The life of a process: GPU memory in operations that are freed before they complete and finish in MPI_Finalize, thread
// levels, and what the MPI says about CUDA. It must not know Crosslane.
#include "support/program.h"

#include <dlfcn.h>

using namespace crosslane::tests;

namespace {

// Freed sends: the data of the moment of the call arrives, whatever the program does with the request.
void freed_requests(const Program& program) {
  constexpr int elements = 50000;
  const int next = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  Memory mine(MemoryKind::device, elements * sizeof(int)), theirs(MemoryKind::device, elements * sizeof(int));
  mine.fill(std::vector<int>(elements, program.rank));
  MPI_Request sent = MPI_REQUEST_NULL, got = MPI_REQUEST_NULL, persistent = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(theirs.data(), elements, MPI_INT, before, 1, MPI_COMM_WORLD, &got));
  CROSSLANE_MPI(MPI_Isend(mine.data(), elements, MPI_INT, next, 1, MPI_COMM_WORLD, &sent));
  CROSSLANE_MPI(MPI_Request_free(&sent));
  CROSSLANE_CHECK(sent == MPI_REQUEST_NULL, "a freed request is not null");
  polite_wait(got);
  CROSSLANE_CHECK(theirs.values<int>() == std::vector<int>(elements, before), "wrong data from a freed send");
  // An active persistent send, freed; its receive is the last call before the end.
  CROSSLANE_MPI(MPI_Irecv(theirs.data(), elements, MPI_INT, before, 2, MPI_COMM_WORLD, &got));
  CROSSLANE_MPI(MPI_Send_init(mine.data(), elements, MPI_INT, next, 2, MPI_COMM_WORLD, &persistent));
  CROSSLANE_MPI(MPI_Start(&persistent));
  CROSSLANE_MPI(MPI_Request_free(&persistent));
  polite_wait(got);
  CROSSLANE_CHECK(theirs.values<int>() == std::vector<int>(elements, before),
                  "wrong data from a freed persistent send");
}

}  // namespace

int main(int argc, char** argv) {
  Program program(argc, argv, "life_test", MPI_THREAD_FUNNELED);
  int level = -1;
  CROSSLANE_MPI(MPI_Query_thread(&level));
  CROSSLANE_CHECK(level >= MPI_THREAD_FUNNELED, "MPI_Query_thread says {}", level);
  if (auto* const query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support")))
    CROSSLANE_CHECK_EQUAL(query(), static_cast<int>(program.option("support", 1)));

  freed_requests(program);
  return program.finish();
}
