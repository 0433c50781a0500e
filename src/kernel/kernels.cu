// The kernels' entries for GPUs, by the names in entries.h. Compiled by nvcc to the fat binary of catalogue.h.
#include "kernel/entries.h"

#define CROSSLANE_ENTRY(name, ...)                                                             \
  extern "C" __global__ void __launch_bounds__(256) name(__VA_ARGS__::Parameters parameters) { \
    __VA_ARGS__{}(crosslane::kernel::GpuBlock{}, parameters);                                  \
  }
CROSSLANE_COPY_KERNELS(CROSSLANE_ENTRY)

#define CROSSLANE_REDUCE_ENTRY(op_name, functor, element, type)                                                   \
  extern "C" __global__ void __launch_bounds__(256)                                                               \
      crosslane_reduce_##op_name##_##element(crosslane::kernel::ReduceParameters parameters) {                    \
    crosslane::kernel::Reduce<type, crosslane::kernel::op::functor>{}(crosslane::kernel::GpuBlock{}, parameters); \
  }
CROSSLANE_REDUCTIONS(CROSSLANE_REDUCE_ENTRY)
