// See light_mutex.h.
#include "base/light_mutex.h"

#include "base/cpu_relax.h"

#include <pthread.h>

#include <chrono>
#include <thread>

namespace crosslane::base {

void LightMutex::wait() noexcept {
  // On crowded processors each yield may cost a slice of whoever else wants them.
  constexpr unsigned spins = 256, yields = 4;
  constexpr std::chrono::microseconds nap{50};
  int cancellable = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable);  // no lock ends a thread; a nap might
  for (unsigned tried = 0;; ++tried) {
    // The line stays shared until there is something to be had.
    if (!taken_.load(std::memory_order_relaxed) && try_lock()) break;
    if (tried < spins)
      cpu_relax();
    else if (tried < spins + yields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(nap);
  }
  pthread_setcancelstate(cancellable, nullptr);
}

}  // namespace crosslane::base
