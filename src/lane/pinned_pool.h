// The pool of pinned host memory that staged copies go through: pinning costs milliseconds, so blocks are kept.
// It must not know what is staged: it lends blocks and takes them back.
#pragma once

#include "gpu/driver.h"
#include "gpu/pinned_buffer.h"

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace crosslane::lane {

class PinnedPool;

/// Gives the driver at first use, which loads it.
using DriverSource = std::function<const gpu::Driver&()>;

/// A block of host memory lent by the pool; goes back when it is destroyed. Move-only.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  friend class PinnedPool;

  /// Gives the driver at first use, which loads it.
  using DriverSource = std::function<const gpu::Driver&()>;
  PinnedPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Thread-safe. Blocks come in four sizes an octave from 4 KiB up. What is lent and what is kept together stay below
/// the limit (CROSSLANE_PINNED_LIMIT) as far as giving back kept blocks can do it; where pinned memory cannot be had
/// at all, ordinary memory is lent and that is said once.
class PinnedPool {
 public:
  PinnedPool(DriverSource driver, std::size_t limit) : driver_(std::move(driver)), limit_(limit) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Lends at least `bytes`. A context must be current. Throws Error (no_memory) when the host has no memory left.
  [[nodiscard]] HostBlock lend(std::size_t bytes);
  /// The same of what is there, without a driver call; empty where nothing is.
  [[nodiscard]] HostBlock lend_kept(std::size_t bytes);

 private:
  friend class HostBlock;
  void take_back(std::byte* data, std::size_t size) noexcept;
  HostBlock lend(gpu::PinnedBuffer buffer, std::size_t size);
  /// Gives every kept block back to the system. The mutex is held.
  void trim() noexcept;

  const DriverSource driver_;
  const std::size_t limit_;
  std::mutex mutex_;                                            // guards what follows
  std::map<std::size_t, std::vector<gpu::PinnedBuffer>> kept_;  // by class size
  std::map<std::byte*, gpu::PinnedBuffer> lent_;                // pinned blocks in use, by address
  std::size_t pinned_ = 0;
  bool fallback_said_ = false;
};

}  // namespace crosslane::lane
