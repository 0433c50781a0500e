// A program as people write them, with the CUDA runtime and without a thought of Crosslane: an all-reduce of what cudaMalloc gave.
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0, gpus = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || cudaSetDevice(rank % gpus) != cudaSuccess) return 2;
  double mine = 0.5 + rank, sum = 0;
  double* device = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&device), sizeof mine) != cudaSuccess) return 2;
  if (cudaMemcpy(device, &mine, sizeof mine, cudaMemcpyHostToDevice) != cudaSuccess) return 2;
  MPI_Allreduce(MPI_IN_PLACE, device, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (cudaMemcpy(&sum, device, sizeof sum, cudaMemcpyDeviceToHost) != cudaSuccess) return 2;
  cudaFree(device);
  const double expected = 0.5 * ranks * ranks;
  std::printf("rank %d: %g, expected %g\n", rank, sum, expected);
  MPI_Finalize();
  return sum == expected ? 0 : 1;
}
