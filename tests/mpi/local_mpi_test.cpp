// MPI opened with RTLD_LOCAL, as mpi4py does, and the wrong MPI: Library finds the one, and names the other.
// Arguments: the MPI library to open, and "found" or "refused".
#include "check.h"

#include "mpi/library.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

using namespace crosslane;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const mpi::Library library;
  CHECK(!library.loaded());  // nothing is loaded yet; the next attempt starts afresh
  void* const opened = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  CHECK(dlsym(RTLD_DEFAULT, "MPI_Comm_rank") == nullptr);
  if (std::strcmp(argv[2], "found") == 0) {
    CHECK(library.loaded());
    CHECK(library.next().Send != nullptr && !library.version().empty());
#if defined(CROSSLANE_ABI_OPENMPI)
    CHECK(library.handles().comm_world == dlsym(opened, "ompi_mpi_comm_world"));
#endif
  } else {
    std::string message;
    try {
      static_cast<void>(library.next());
    } catch (const base::Error& error) {
      message = error.what();
    }
    std::printf("%s\n", message.c_str());
    CHECK(message.find(mpi::family) != std::string::npos);
    CHECK(message.find(argv[1]) != std::string::npos);
    CHECK(message.find("crosslane run") != std::string::npos);
  }
  return check::status();
}
