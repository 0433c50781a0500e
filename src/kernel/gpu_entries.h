// What the .cu files make entries with. Threads of a block, and how many blocks a multiprocessor must hold, are what
// launch.cpp counts on.
#pragma once

#include "kernel/entries.h"

#define CROSSLANE_LOCAL_ENTRY(name, ...)                                                       \
  extern "C" __global__ void __launch_bounds__(256) name(__VA_ARGS__::Parameters parameters) { \
    __VA_ARGS__{}(crosslane::kernel::GpuBlock{}, parameters);                                  \
  }

// Their parameters are large and indexed: they stay in constant memory (those of kernels that stay for further calls: in shared memory).
#define CROSSLANE_TEAM_ENTRY(name, ...)                                  \
  extern "C" __global__ void __launch_bounds__(512, 2)                   \
      name(const __grid_constant__ __VA_ARGS__::Parameters parameters) { \
    __VA_ARGS__{}(crosslane::kernel::GpuBlock{}, parameters);            \
  }
