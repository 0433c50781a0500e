// LightMutex: a mutex for what each message takes: looking something up, or putting it into a list. Those of the C library cost two locked
// instructions and two calls each time, which is what half of a call with a short message was made of; this costs one.
// Who has to wait spins, yields, and sleeps for a moment at a time at last, so what is seldom held for longer does no harm.
#pragma once

#include <atomic>

namespace crosslane::base {

/// Lockable, as std::mutex is; not fair.
class LightMutex {
 public:
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  void wait() noexcept;

  std::atomic<bool> taken_{false};
};

}  // namespace crosslane::base
