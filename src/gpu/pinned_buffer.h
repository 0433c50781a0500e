// Host memory that GPUs copy from and to at full speed, and that kernels can address.
// This file must not know what is staged in it.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"

#include <cstddef>

namespace crosslane::gpu {

/// Pinned host memory (cuMemHostAlloc, for all contexts, mapped for kernels). A context must be current at
/// construction. Move-only. Allocating costs milliseconds and freeing waits for the GPU: keep them.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws Error (no_memory) when the system pins no more. 0 bytes allocate nothing.
  PinnedBuffer(const Driver& driver, std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The context of its construction, which it goes with; null if it is empty.
  [[nodiscard]] CUcontext context() const noexcept { return life_.context(); }
  /// That context has ended: there is no memory at data() any more.
  [[nodiscard]] bool gone() const noexcept { return data_ != nullptr && life_.over(); }
  /// The address by which the GPU of the context at construction knows data().
  [[nodiscard]] CUdeviceptr device_address() const noexcept { return device_address_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  const Driver* driver_ = nullptr;
  Life life_;
  std::byte* data_ = nullptr;
  CUdeviceptr device_address_ = 0;
  std::size_t size_ = 0;
};

/// Pins memory that exists already (a shared segment) for as long as this lives. Move-only.
class PinnedRange {
 public:
  PinnedRange(const Driver& driver, void* data, std::size_t bytes);
  PinnedRange(PinnedRange&& other) noexcept;
  PinnedRange& operator=(PinnedRange&& other) noexcept;
  ~PinnedRange();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] CUdeviceptr device_address() const noexcept { return device_address_; }

 private:
  const Driver* driver_;
  Life life_;
  void* data_ = nullptr;
  CUdeviceptr device_address_ = 0;
};

}  // namespace crosslane::gpu
