// A kernel that does arithmetic for a while and leaves no room beside it: 1024 threads of 64 registers are all registers of
// a multiprocessor of compute capability 8 and 9. Its blocks end after some time, so that others get their turn.
extern "C" __global__ void __launch_bounds__(1024, 1)
    crosslane_bench_busy(unsigned long long nanoseconds, float* never) {
  constexpr int values = 52;
  float value[values];
  for (int i = 0; i < values; ++i) value[i] = static_cast<float>(threadIdx.x + i) * 1e-3F;
  unsigned long long begun = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
  do {
#pragma unroll 1
    for (int round = 0; round < 16; ++round) {
#pragma unroll
      for (int i = 0; i < values; ++i) value[i] = value[i] * 0.5F + value[(i + 1) % values];
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begun < nanoseconds);
  float sum = 0;
  for (int i = 0; i < values; ++i) sum += value[i];
  if (sum == -1.0F) *never = sum;  // so that it is computed
}
