// Backoff: what turned out to be in vain is left alone for so many turns, twice as many each time. It must not know what is tried.
#pragma once

#include <algorithm>
#include <atomic>

namespace crosslane::base {

/// From `least` turns to `most`. Thread-safe; of two threads that count at once one may be lost.
template <unsigned least, unsigned most>
class Backoff {
 public:
  /// It is left alone.
  [[nodiscard]] bool rests() const noexcept { return left_.load(std::memory_order_relaxed) != 0; }
  /// A turn goes by.
  void pass() noexcept {
    if (const unsigned left = left_.load(std::memory_order_relaxed); left != 0)
      left_.store(left - 1, std::memory_order_relaxed);
  }
  /// It was in vain.
  void rest() noexcept {
    const unsigned rest = std::clamp(2 * last_.load(std::memory_order_relaxed), least, most);
    last_.store(rest, std::memory_order_relaxed);
    left_.store(rest, std::memory_order_relaxed);
  }
  /// It was not: the next rest is a short one again.
  void prove() noexcept { last_.store(0, std::memory_order_relaxed); }
  /// The same, and it rests no longer.
  void wake() noexcept {
    prove();
    left_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<unsigned> left_{0}, last_{0};
};

/// Of what failed for want of memory.
using ShortageBackoff = Backoff<4, 1024>;

}  // namespace crosslane::base
