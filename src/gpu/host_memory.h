// Tells quickly that an address is host memory. Asking the driver about host memory costs about a microsecond on real
// GPUs, and every buffer of every MPI call in a process that has loaded the driver is asked about.
// It must not claim GPU memory: what it does not know goes to the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace crosslane::gpu {

/// Thread-safe. What can never become GPU memory (the thread's stack, the program's data, the heap below its break)
/// is told by comparisons; pages that the driver called host memory before are asked of the kernel again, since they may
/// have been unmapped and reserved for a GPU: GPU memory cannot be read by the CPU.
class HostMemory {
 public:
  HostMemory();

  /// True only if this byte is memory of the CPU. A few nanoseconds for stack, data and heap, a system call for others.
  [[nodiscard]] bool knows(const void* address) const noexcept;

  /// The driver said that this byte is not GPU memory.
  void remember(const void* address) noexcept;

 private:
  static constexpr unsigned page_bits = 12;
  static constexpr std::size_t slots = 1024;  // a direct-mapped cache of pages; 4 MiB of buffers without a conflict
  [[nodiscard]] static std::size_t slot(std::uintptr_t page) noexcept { return (page ^ (page >> 10)) % slots; }

  std::uintptr_t data_begin_ = 0, data_end_ = 0;  // the program's own writable segments, then its heap up to the break
  std::array<std::atomic<std::uintptr_t>, slots> pages_{};
};

}  // namespace crosslane::gpu
