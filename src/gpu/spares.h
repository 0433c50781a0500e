// Spares: device memory for copies of buffers, kept from call to call, since allocating it takes as long as a transfer and freeing it
// waits for the GPU. It must not know what lies in it.
#pragma once

#include "gpu/buffer.h"
#include "gpu/driver.h"

#include <cstddef>
#include <mutex>
#include <vector>

namespace crosslane::gpu {

/// Of one context. Thread-safe.
class Spares {
 public:
  /// Of what nobody uses, no more is kept: the application's memory is short where its buffers are large.
  static constexpr std::size_t most_kept = std::size_t{512} << 20;

  /// In the context `context`, which must outlive it, or have ended before.
  Spares(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {}

  /// At least so many bytes with whatever is in them: the smallest kept buffer that holds them, or a new one. Calls that repeat get the
  /// same memory again. Throws Error (no_memory) where the GPU has none left though all that was kept is freed.
  [[nodiscard]] Buffer lend(std::size_t bytes);
  /// Keeps it, and frees what was used longest ago where that is more than may be kept. What alone is more is freed itself.
  void take_back(Buffer buffer) noexcept;

 private:
  [[nodiscard]] Buffer allocate(std::size_t bytes);

  const Driver& driver_;
  CUcontext context_;
  std::mutex mutex_;
  std::vector<Buffer> kept_;  // what was used longest ago first
  std::size_t bytes_ = 0;     // of all
};

}  // namespace crosslane::gpu
