// An MPI some of whose procedures fail when they are told to, and that counts how often the error handlers of its own communicators are set. It
// stands between Crosslane and the MPI, and must not know Crosslane.
#include <dlfcn.h>
#include <mpi.h>

#include <atomic>
#include <cstring>

namespace {

std::atomic<const char*> failing{nullptr};
std::atomic<int> handlers_set{0};

bool fails(const char* procedure) {
  const char* const name = failing;
  return name != nullptr && std::strcmp(name, procedure) == 0;
}

template <class Procedure>
Procedure* behind(const char* name, Procedure* /*of this type*/) {
  return reinterpret_cast<Procedure*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define CROSSLANE_TEST_EXPORT extern "C" __attribute__((visibility("default")))

/// A procedure that is to fail from now on, "MPI_Put"; null for none.
CROSSLANE_TEST_EXPORT void crosslane_test_fail(const char* procedure);
CROSSLANE_TEST_EXPORT void crosslane_test_fail(const char* procedure) { failing = procedure; }

/// How often they have been, past the application's own calls.
CROSSLANE_TEST_EXPORT int crosslane_test_handlers_set();
CROSSLANE_TEST_EXPORT int crosslane_test_handlers_set() { return handlers_set; }

CROSSLANE_TEST_EXPORT int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  if (comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF) ++handlers_set;
  return behind("PMPI_Comm_set_errhandler", PMPI_Comm_set_errhandler)(comm, handler);
}
CROSSLANE_TEST_EXPORT int PMPI_Win_create(void* base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm,
                                          MPI_Win* win) {
  return fails("MPI_Win_create") ? MPI_ERR_OTHER
                                 : behind("PMPI_Win_create", PMPI_Win_create)(base, size, unit, info, comm, win);
}
CROSSLANE_TEST_EXPORT int MPI_Win_detach(MPI_Win win, const void* base) {
  return fails("MPI_Win_detach") ? MPI_ERR_OTHER : behind("MPI_Win_detach", MPI_Win_detach)(win, base);
}
CROSSLANE_TEST_EXPORT int PMPI_Win_sync(MPI_Win win) {
  return fails("MPI_Win_sync") ? MPI_ERR_OTHER : behind("PMPI_Win_sync", PMPI_Win_sync)(win);
}
CROSSLANE_TEST_EXPORT int PMPI_Win_flush(int rank, MPI_Win win) {
  return fails("MPI_Win_flush") ? MPI_ERR_OTHER : behind("PMPI_Win_flush", PMPI_Win_flush)(rank, win);
}
CROSSLANE_TEST_EXPORT int PMPI_Put(const void* from, int count, MPI_Datatype type, int target, MPI_Aint place,
                                   int target_count, MPI_Datatype target_type, MPI_Win win) {
  return fails("MPI_Put")
             ? MPI_ERR_OTHER
             : behind("PMPI_Put", PMPI_Put)(from, count, type, target, place, target_count, target_type, win);
}
