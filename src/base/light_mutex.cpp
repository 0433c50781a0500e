// See light_mutex.h.
#include "base/light_mutex.h"

#include <chrono>
#include <thread>

namespace crosslane::base {

void LightMutex::wait() noexcept {
  constexpr unsigned spins = 256, yields = 64;
  for (unsigned tried = 0;; ++tried) {
    // The line stays shared until there is something to be had.
    if (!taken_.load(std::memory_order_relaxed) && try_lock()) return;
    if (tried < spins) continue;
    if (tried < spins + yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

}  // namespace crosslane::base
