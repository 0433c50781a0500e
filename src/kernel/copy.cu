// The copies that one GPU runs by itself. Threads of a block are what copies.cpp counts on; parameters that are indexed
// stay in constant memory.
#include "kernel/copy_entries.h"

#define CROSSLANE_COPY_ENTRY(name, ...)                                  \
  extern "C" __global__ void __launch_bounds__(256, 4)                   \
      name(const __grid_constant__ __VA_ARGS__::Parameters parameters) { \
    __VA_ARGS__{}(crosslane::kernel::GpuBlock{}, parameters);            \
  }
CROSSLANE_COPY_KERNELS(CROSSLANE_COPY_ENTRY)
