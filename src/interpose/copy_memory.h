// Memory for the copy of a buffer that kernels of a GPU use in its place: of the GPU, or pinned host memory, which they reach as well, where
// the GPU has none left. It must not know what is copied.
#pragma once

#include "gpu/buffer.h"
#include "interpose/process.h"
#include "lane/pinned_pool.h"
#include "team/home.h"

#include <cstddef>

namespace crosslane::interpose {

class CopyMemory {
 public:
  /// Throws Error (no_memory) where neither is to be had.
  CopyMemory(Process& process, team::Home& home, const char* call, std::size_t bytes);
  CopyMemory(const CopyMemory&) = delete;
  CopyMemory& operator=(const CopyMemory&) = delete;
  /// One that was not given back may still be used by this GPU, or by others.
  ~CopyMemory();

  [[nodiscard]] std::byte* data() const noexcept { return on_gpu() ? buffer_.data() : block_.data(); }
  [[nodiscard]] bool on_gpu() const noexcept { return buffer_.data() != nullptr; }
  /// Others may map it, and will find it again in later calls.
  [[nodiscard]] bool lasts() const noexcept { return on_gpu() && buffer_.size() <= gpu::Spares::most_kept; }
  /// Nobody uses it any more: the next call may have it.
  void give_back() noexcept;

 private:
  team::Home& home_;
  gpu::Buffer buffer_;
  lane::HostBlock block_;
};

}  // namespace crosslane::interpose
