// A program that is done with its GPU before MPI_Finalize: it gives its context back, resets the GPU (what cudaDeviceReset does) or
// destroys a context of its own. Nothing of that context may be touched afterwards: the real driver crashes, the emulated one aborts.
#include <cuda.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "context_test: %s failed with %d\n", call, static_cast<int>(result));
  MPI_Abort(MPI_COMM_WORLD, 2);
}

// Messages of all protocols between neighbours, and collectives through windows and straight from buffers: a second time, since first uses
// are staged.
bool communicate(CUdeviceptr send, CUdeviceptr receive, int rank, int ranks, int largest) {
  bool right = true;
  for (int round = 0; round < 3; ++round) {
    for (const int count : {16, 4096, largest}) {
      const std::vector<int> mine(static_cast<std::size_t>(count), rank + round + 1);
      check(cuMemcpyHtoD(send, mine.data(), mine.size() * sizeof(int)), "cuMemcpyHtoD");
      check(cuMemsetD8(receive, 0, mine.size() * sizeof(int)), "cuMemsetD8");
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      const auto to = reinterpret_cast<void*>(receive);
      const auto from = reinterpret_cast<const void*>(send);
      std::vector<int> got(mine.size());
      MPI_Sendrecv(from, count, MPI_INT, (rank + 1) % ranks, 0, to, count, MPI_INT, (rank + ranks - 1) % ranks, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      check(cuMemcpyDtoH(got.data(), receive, got.size() * sizeof(int)), "cuMemcpyDtoH");
      right = right && got == std::vector<int>(got.size(), (rank + ranks - 1) % ranks + round + 1);
      MPI_Allreduce(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      check(cuMemcpyDtoH(got.data(), receive, got.size() * sizeof(int)), "cuMemcpyDtoH");
      right = right && got == std::vector<int>(got.size(), ranks * (ranks - 1) / 2 + ranks * (round + 1));
    }
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string end = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0, gpus = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&gpus), "cuDeviceGetCount");
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuDeviceGet(&device, rank % gpus), "cuDeviceGet");
  const bool own = end == "destroy";
  if (own) {
#if CUDA_VERSION >= 13000
    check(cuCtxCreate(&context, nullptr, 0, device), "cuCtxCreate");
#else
    check(cuCtxCreate(&context, 0, device), "cuCtxCreate");
#endif
  } else {
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }
  constexpr int largest = 1 << 20;
  CUdeviceptr send = 0, receive = 0;
  check(cuMemAlloc(&send, largest * sizeof(int)), "cuMemAlloc");
  check(cuMemAlloc(&receive, largest * sizeof(int)), "cuMemAlloc");
  const bool right = communicate(send, receive, rank, ranks, largest);
  check(cuMemFree(send), "cuMemFree");
  check(cuMemFree(receive), "cuMemFree");
  // A rank that is faster must not take away what the others still read.
  MPI_Barrier(MPI_COMM_WORLD);
  if (own) {
    check(cuCtxDestroy(context), "cuCtxDestroy");
  } else if (end == "reset") {
    check(cuDevicePrimaryCtxReset(device), "cuDevicePrimaryCtxReset");
  } else if (end == "release") {
    check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  } else {
    std::fprintf(stderr, "context_test: say release, reset or destroy\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (!right) std::fprintf(stderr, "context_test: rank %d received something wrong\n", rank);
  int all = right ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) std::printf("context_test: %s, %s\n", end.c_str(), all != 0 ? "passed" : "FAILED");
  return all != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
