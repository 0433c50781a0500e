// May the application pass GPU memory? The queries of a program that is linked with one library of ours and has another preloaded. It must
// not know how a library finds the MPI.
// --off 1: both are switched off, and the MPI alone answers.
#include "support/program.h"

#include <dlfcn.h>
#include <mpi.h>

namespace crosslane::tests {
namespace {

using QueryCuda = int (*)();
using QueryGpu = int (*)(int, int*);

int answer_of(void* library) {
  if (void* const symbol = dlsym(library, "MPIX_GPU_query_support")) {
    constexpr int cuda = 0;  // MPIX_GPU_SUPPORT_CUDA
    int supported = -1;
    CROSSLANE_CHECK_EQUAL(reinterpret_cast<QueryGpu>(symbol)(cuda, &supported), MPI_SUCCESS);
    return supported;
  }
  void* const symbol = dlsym(library, "MPIX_Query_cuda_support");
  return symbol == nullptr ? 0 : reinterpret_cast<QueryCuda>(symbol)();
}

int answer_of_mpi() {
  for (const char* const name : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}) {
    if (void* const mpi = dlopen(name, RTLD_NOLOAD | RTLD_LAZY); mpi != nullptr) {
      const int answer = answer_of(mpi);
      dlclose(mpi);
      return answer;
    }
  }
  CROSSLANE_CHECK(false, "there is no MPI");
  return -1;
}

// The one that the program is linked with.
int answer_of_linked() {
#if defined(CROSSLANE_TEST_MPI_OPENMPI)
  constexpr const char* name = "libcrosslane_openmpi.so";
#else
  constexpr const char* name = "libcrosslane_mpich.so";
#endif
  void* const linked = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
  CROSSLANE_CHECK(linked != nullptr, "{} is not loaded", name);
  if (linked == nullptr) return -1;
  const int answer = answer_of(linked);
  dlclose(linked);
  return answer;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_support");
  const int own = answer_of_mpi();
  CROSSLANE_CHECK_EQUAL(answer_of_linked(), own);
  const bool off = program.option("off", 0) != 0;
  CROSSLANE_CHECK_EQUAL(answer_of(RTLD_DEFAULT), off ? own : 1);
  void* const query = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  CROSSLANE_CHECK_EQUAL(reinterpret_cast<QueryCuda>(query)(), off ? own : 1);
  return program.finish();
}
