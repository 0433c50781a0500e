// An MPI that counts the communicators that are made of MPI_COMM_SELF, past the application's own calls. It stands between Crosslane and the MPI,
// and must not know Crosslane.
#include <dlfcn.h>
#include <mpi.h>

#include <atomic>

namespace {
std::atomic<int> made{0};
}  // namespace

#define CROSSLANE_TEST_EXPORT extern "C" __attribute__((visibility("default")))

CROSSLANE_TEST_EXPORT int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  if (comm == MPI_COMM_SELF) ++made;
  using Procedure = int (*)(MPI_Comm, int, int, MPI_Comm*);
  return reinterpret_cast<Procedure>(dlsym(RTLD_NEXT, "PMPI_Comm_split"))(comm, color, key, newcomm);
}

CROSSLANE_TEST_EXPORT int crosslane_test_made_of_self();
CROSSLANE_TEST_EXPORT int crosslane_test_made_of_self() { return made; }
