// Device memory of ours. This file must not know what is kept in it.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"

#include <cstddef>
#include <cstdint>

namespace crosslane::gpu {

/// Device memory (cuMemAlloc) in the context that is current at construction. Move-only. Can be exported to other
/// processes. Freeing it waits for all work of the context, as CUDA does: not on a path that must be quick.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error (no_memory) when the GPU has no memory left. 0 bytes allocate nothing.
  Buffer(const Driver& driver, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(pointer_); }
  [[nodiscard]] CUdeviceptr address() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The handle that a Mapping in another process opens.
  [[nodiscard]] CUipcMemHandle export_handle() const;

 private:
  const Driver* driver_ = nullptr;
  Life life_;
  CUdeviceptr pointer_ = 0;
  std::size_t size_ = 0;
};

}  // namespace crosslane::gpu
