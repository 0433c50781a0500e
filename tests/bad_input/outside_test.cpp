// Calls with GPU memory before MPI_Init or after MPI_Finalize: the MPI ends the program, and is to name the call that the program made.
// outside_test before|after <call>. It must not know Crosslane.
#include <cuda.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "outside_test: %s failed with %d\n", call, static_cast<int>(result));
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string when = argc > 1 ? argv[1] : "", call = argc > 2 ? argv[2] : "";
  if (when == "after") {
    MPI_Init(&argc, &argv);
    MPI_Finalize();
  }
  CUcontext context = nullptr;
  CUdeviceptr first = 0;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuMemAlloc(&first, 2 * sizeof(int)), "cuMemAlloc");
  int* const memory = reinterpret_cast<int*>(first);
  if (call == "allreduce") MPI_Allreduce(memory, memory + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (call == "recv") MPI_Recv(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  std::fprintf(stderr, "outside_test: %s has returned\n", call.c_str());
  return EXIT_SUCCESS;
}
