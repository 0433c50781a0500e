// Another process's device memory, opened here. This file must not know how the handle travelled, nor when a mapping
// may be kept: share/ caches and revokes.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"

#include <cstddef>

namespace crosslane::gpu {

/// An opened CUDA IPC memory handle, in the context that is current at construction. Move-only. Opening costs up to milliseconds; closing waits for all
/// that the context has under way, and keeps launches and copies of all threads waiting with it (an H200, driver 580). A handle of this very
/// process cannot be opened.
class Mapping {
 public:
  Mapping(const Driver& driver, const CUipcMemHandle& handle);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Where the exported allocation begins here.
  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(pointer_); }
  [[nodiscard]] CUdeviceptr address() const noexcept { return pointer_; }

 private:
  const Driver* driver_;
  Life life_;
  CUdeviceptr pointer_ = 0;
};

}  // namespace crosslane::gpu
