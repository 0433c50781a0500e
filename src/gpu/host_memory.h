// Tells quickly that an address is host memory. Asking the driver about host memory costs about a microsecond on real
// GPUs, asking the loader whether there is a driver some 13 ns, and every buffer of every MPI call is asked about.
// It must not claim GPU memory: what it does not know goes to the driver.
#pragma once

#include "gpu/driver.h"
#include "gpu/region.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

extern "C" {
extern void* __curbrk
    __attribute__((weak));  // glibc's record of the heap's end; sbrk is a hook of UCX's where that is loaded
}

namespace crosslane::gpu {

namespace detail {
// Where the system's stack of this thread lies, which grows down from its end; an end of 0 before it was asked for. Initial-exec: the
// library is loaded at program start, and a call of __tls_get_addr would cost more than the comparisons.
struct Stack {
  std::uintptr_t begin, end;
};
extern constinit thread_local Stack stack __attribute__((tls_model("initial-exec")));
std::uintptr_t find_stack() noexcept;  // its end
}  // namespace detail

/// Thread-safe. What can never become GPU memory (the thread's stack, the program's data, the heap below its break)
/// is told by comparisons; regions that the driver called host memory before are asked of the kernel again, since they
/// may have been unmapped and reserved for a GPU: GPU memory cannot be read by the CPU. Managed memory can, and may be
/// taken for the host's where it lies in such a region: the MPI below can read and write it as well.
class HostMemory {
 public:
  HostMemory();

  /// True if this byte is on the thread's stack, in the program's data or in its heap: some two nanoseconds.
  [[nodiscard]] bool certain(const void* address) const noexcept {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (value >= frame) {
      const std::uintptr_t end = detail::stack.end != 0 ? detail::stack.end : detail::find_stack();
      // User-level threads run on stacks in the heap or in mappings: anything may lie between theirs and the system's.
      if (value < end && frame >= detail::stack.begin) return true;
    }
    if (value >= data_begin_ && value < data_end_) return true;
    return value >= heap_begin_ && value < heap_end();
  }

  /// True only if this byte is memory of the CPU. A system call for what is not certain.
  [[nodiscard]] bool knows(const void* address) const noexcept {
    if (certain(address)) return true;
    const std::uintptr_t region = region_of(address);
    return regions_[slot(region)].load(std::memory_order_relaxed) == region && Gpu::readable_by_cpu(address);
  }

  /// The driver said that this byte is not GPU memory.
  void remember(const void* address) noexcept {
    const std::uintptr_t region = region_of(address);
    regions_[slot(region)].store(region, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t slots = 1024;  // a direct-mapped cache of regions; 2 GiB of buffers without a conflict
  [[nodiscard]] static std::size_t slot(std::uintptr_t region) noexcept { return (region ^ (region >> 10)) % slots; }
  [[nodiscard]] static std::uintptr_t heap_end() noexcept {
    return &__curbrk != nullptr ? reinterpret_cast<std::uintptr_t>(__curbrk) : 0;
  }

  std::uintptr_t data_begin_ = 0, data_end_ = 0;  // the program's own writable segments
  std::uintptr_t heap_begin_ = UINTPTR_MAX;  // its heap goes from here up to the break; never where that is unknown
  std::array<std::atomic<std::uintptr_t>, slots> regions_{};
};

}  // namespace crosslane::gpu
