// The pool of pinned host memory that staged copies go through: pinning costs milliseconds, so blocks are kept, each for
// the context that it was pinned in, with which it goes. It must not know what is staged: it lends blocks and takes them back.
#pragma once

#include "base/light_mutex.h"
#include "gpu/driver.h"
#include "gpu/pinned_buffer.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::lane {

class PinnedPool;

/// It changes hands several times a message, and is long to move.
using Pinned = std::unique_ptr<gpu::PinnedBuffer>;

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
  /// Whether kernels reach it; ordinary memory they do not.
  [[nodiscard]] bool mapped() const noexcept { return pinned_ != nullptr; }
  /// Ordinary memory is about to be used after all, and not worth keeping then.
  void use() noexcept { used_ = true; }
  /// The context that it was pinned in has ended, and the memory with it.
  [[nodiscard]] bool gone() const noexcept { return pinned_ != nullptr && pinned_->gone(); }

 private:
  friend class PinnedPool;
  PinnedPool* pool_ = nullptr;
  Pinned pinned_;  // null where it is ordinary memory
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t ended_ = 0;  // how many contexts had when it was lent
  bool used_ = true;
};

/// Thread-safe. Blocks come in four sizes an octave from 4 KiB up. What is lent and what is kept together stay below
/// the limit (CROSSLANE_PINNED_LIMIT) as far as giving back kept blocks can do it; where pinned memory cannot be had
/// at all, ordinary memory is lent and that is said once.
class PinnedPool {
 public:
  PinnedPool(DriverSource driver, std::size_t limit) : driver_(std::move(driver)), limit_(limit) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  /// Lends at least `bytes`, pinned in the current context. Throws Error (no_memory) when the host has no memory left.
  [[nodiscard]] HostBlock lend(std::size_t bytes);
  /// The same of what is there for a context, without a driver call; empty where nothing is.
  [[nodiscard]] HostBlock lend_kept(CUcontext context, std::size_t bytes);

  /// Ordinary memory, which costs nothing until it is touched: for what most likely never is. Kept where it was not used, the longest of it, since
  /// the system takes its time for giving and taking. Throws Error (no_memory).
  [[nodiscard]] HostBlock lend_ordinary(std::size_t bytes);

  /// A context has ended, and all that was pinned in it: nothing of that is lent any more.
  void forget(CUcontext context) noexcept;

 private:
  friend class HostBlock;
  struct Class {
    CUcontext context;
    std::size_t size;
    friend auto operator<=>(const Class&, const Class&) = default;
  };
  HostBlock ordinary(std::size_t size);
  void take_back(HostBlock& block) noexcept;
  // The mutex is held in what follows.
  bool drop_shorter(std::size_t bytes) noexcept;
  HostBlock lend(Pinned buffer, std::size_t size) noexcept;
  /// Gives kept blocks back to the system until there is room for so many bytes more: the longest, which are few.
  void make_room(std::size_t bytes) noexcept;
  /// Gives every kept block back to the system.
  void trim() noexcept;

  const DriverSource driver_;
  const std::size_t limit_;
  base::LightMutex mutex_;  // guards what follows
  std::map<Class, std::vector<Pinned>> kept_;
  std::map<std::size_t, std::vector<std::byte*>> untouched_;  // ordinary memory, by size
  std::size_t untouched_count_ = 0;
  std::size_t pinned_ = 0;
  std::uint64_t ended_ = 0;
  bool fallback_said_ = false;
};

}  // namespace crosslane::lane
