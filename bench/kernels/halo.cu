// The hand-written kernels that the halo exchange is compared with: the faces, edges and corners of an array to one buffer, and back.
#include "kernels/halo_parts.h"

using crosslane::bench::HaloParts;

extern "C" __global__ void __launch_bounds__(256)
    crosslane_bench_halo_pack(const __grid_constant__ HaloParts parts, const double* array, double* buffer) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < parts.cells;
       i += step)
    buffer[i] = array[crosslane::bench::cell_of(parts, i)];
}

extern "C" __global__ void __launch_bounds__(256)
    crosslane_bench_halo_unpack(const __grid_constant__ HaloParts parts, double* array, const double* buffer) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < parts.cells;
       i += step)
    array[crosslane::bench::cell_of(parts, i)] = buffer[i];
}
