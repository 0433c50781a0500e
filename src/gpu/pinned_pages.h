// Pinned host memory that is still there, as ordinary memory, once its context has ended. It must not know what is kept in it.
#pragma once

#include "gpu/driver.h"
#include "gpu/pinned_buffer.h"

#include <cstddef>
#include <memory>
#include <optional>

namespace crosslane::gpu {

/// For words that the host may look at from anywhere, whatever became of the GPU that writes them. Whole pages, zeroed. A context must be current at
/// construction. Move-only.
class PinnedPages {
 public:
  PinnedPages() = default;
  /// Throws Error (no_memory) when the system has, or pins, no more.
  PinnedPages(const Driver& driver, std::size_t bytes);
  PinnedPages(PinnedPages&&) noexcept = default;
  PinnedPages& operator=(PinnedPages&& other) noexcept;
  ~PinnedPages() = default;

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  /// The address by which the GPU of the context at construction knows data().
  [[nodiscard]] CUdeviceptr device_address() const noexcept { return pinned_ ? pinned_->device_address() : 0; }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Unmap> memory_{nullptr, Unmap{0}};
  std::optional<PinnedRange> pinned_;  // ends before the memory
};

}  // namespace crosslane::gpu
