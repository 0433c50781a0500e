// Kernels that do a given amount of arithmetic, whatever runs beside them. `whole`: a block takes all registers of a multiprocessor of compute
// capability 8 and 9, so that it waits where any other block is; `small` ones fit in between.
template <int values>
static __device__ __forceinline__ void work(unsigned rounds, float* never) {
  float value[values];
  for (int i = 0; i < values; ++i) value[i] = static_cast<float>(threadIdx.x + i) * 1e-3F;
#pragma unroll 1
  for (unsigned round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < values; ++i) value[i] = value[i] * 0.5F + value[(i + 1) % values];
  }
  float sum = 0;
  for (int i = 0; i < values; ++i) sum += value[i];
  if (sum == -1.0F) *never = sum;  // so that it is computed
}

extern "C" __global__ void __launch_bounds__(1024, 1) crosslane_bench_work_whole(unsigned rounds, float* never) {
  work<52>(rounds, never);
}
extern "C" __global__ void __launch_bounds__(256, 8) crosslane_bench_work_small(unsigned rounds, float* never) {
  work<16>(rounds, never);
}
