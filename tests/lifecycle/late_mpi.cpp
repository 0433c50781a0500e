// An MPI that fails one rank at the end of MPI_Init, behind all that ranks do together there, where a program cannot have chosen an error handler
// yet: so this does. It stands between Crosslane and the MPI, and must not know Crosslane.
#include <dlfcn.h>
#include <mpi.h>

#include <atomic>
#include <initializer_list>

namespace {

std::atomic<bool> failing{false};

template <class Procedure>
Procedure* behind(const char* name, Procedure* /*of this type*/) {
  return reinterpret_cast<Procedure*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define CROSSLANE_TEST_EXPORT extern "C" __attribute__((visibility("default")))

/// Whether this process is that rank from now on.
CROSSLANE_TEST_EXPORT void crosslane_test_fail_late(bool fails);
CROSSLANE_TEST_EXPORT void crosslane_test_fail_late(bool fails) { failing = fails; }

CROSSLANE_TEST_EXPORT int MPI_Init(int* argc, char*** argv) {
  const int code = behind("MPI_Init", MPI_Init)(argc, argv);
  for (MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF})
    behind("PMPI_Comm_set_errhandler", PMPI_Comm_set_errhandler)(each, MPI_ERRORS_RETURN);
  return code;
}
CROSSLANE_TEST_EXPORT int PMPI_Comm_set_attr(MPI_Comm comm, int key, void* value) {
  return failing ? MPI_ERR_OTHER : behind("PMPI_Comm_set_attr", PMPI_Comm_set_attr)(comm, key, value);
}
