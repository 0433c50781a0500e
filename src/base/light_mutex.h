// LightMutex: a mutex for what each message takes several times: looking something up, or putting it into a list. Those of the C library cost two
// locked instructions and two calls each time, a third of what all a call with a short message does; this costs one.
// What holds it may also be long for once, as where memory is pinned: who waits naps then.
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
