// What a module is under emulation: kernels compiled for the host, found by name. A pointer to an EmulatedImage is
// given to cuModuleLoadData in place of a cubin. The image and what it points to must outlive the module.
// This file must not know how kernels are written: kernel/ fills the table.
#pragma once

#include <cstdint>

namespace crosslane::gpu {

/// One block of a running launch, as its kernel sees it.
struct EmulatedLaunch {
  unsigned grid[3];         ///< Blocks in the grid.
  unsigned block[3];        ///< Threads in a block.
  unsigned block_index[3];  ///< The block that this call runs.
  unsigned shared_bytes;    ///< Dynamic shared memory that was asked for.
  void* shared;             ///< That memory, private to the block, 16-byte aligned; null where none was asked for.
  /// The CPU address of a device address; addresses of host memory come back as they are.
  void* (*translate)(std::uint64_t device_address);
  /// True once this launch should return early (its context goes away). Whatever spins must ask.
  bool (*aborted)();
};

/// A kernel: run() is called once a block. `parameters` are cuLaunchKernel's: one pointer to each argument's value,
/// null-terminated copies made at the launch, so `run` may read them at any time during the call.
struct EmulatedKernel {
  const char* name;
  void (*run)(const EmulatedLaunch& launch, void** parameters);
  bool
      concurrent;  ///< True: all blocks run at once, a thread each, and may wait for each other. False: one after another.
  std::uint32_t parameter_count;         ///< Number of arguments.
  const std::uint32_t* parameter_sizes;  ///< Bytes of each, so that a launch can copy them.
};

struct EmulatedImage {
  char magic[16] = {'c', 'r', 'o', 's', 's', 'l', 'a', 'n', 'e', '-', 'i', 'm', 'a', 'g', 'e', '\0'};
  std::uint32_t count = 0;
  const EmulatedKernel* kernels = nullptr;
};

}  // namespace crosslane::gpu
