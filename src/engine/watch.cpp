// The watchdog's clock and its line.
#include "engine/watch.h"

#include "base/log.h"

#include <fmt/core.h>

#include <new>

namespace crosslane::engine {

std::string describe(const Watch& watch) {
  std::string line{watch.call.empty() ? std::string_view{"a wait"} : watch.call};
  if (!watch.communicator.empty()) line += fmt::format(" on {}", watch.communicator);
  if (watch.name != nullptr) line += fmt::format(" on {}", watch.name(watch.context));
  if (watch.sequence != 0) line += fmt::format(", call {}", watch.sequence);
  if (watch.peer >= 0) line += fmt::format(", peer {}", watch.peer);
  const std::string details = watch.details == nullptr ? std::string() : watch.details(watch.context);
  if (!details.empty()) line += fmt::format(": {}", details);
  return line;
}

void Watchdog::look(bool moved) {
  if (seconds_ <= 0 && watch_.check == nullptr) return;
  moved_ = moved_ || moved;
  constexpr unsigned looks_per_clock = 64;
  if (looks_++ % looks_per_clock != 0) return;
  const base::Time now = base::now();
  constexpr std::chrono::seconds check_every{1};
  if (checked_ == base::Time{}) checked_ = now;
  if (watch_.check != nullptr && now - checked_ >= check_every) {
    checked_ = now;
    watch_.check(watch_.checked);
  }
  if (seconds_ <= 0) return;
  if (moved_) {
    last_ = reported_ = now;
    moved_ = false;
    return;
  }
  const std::chrono::duration<double> silent = now - reported_;
  if (silent.count() < due_) return;
  reported_ = now;
  due_ = seconds_;
  const std::chrono::duration<double> total = now - last_;
  try {
    base::log(base::Topic::error, "no progress for {:.3g} s in {}", total.count(), describe(watch_));
  } catch (const std::bad_alloc&) {
    base::log(base::Topic::error, "no progress for {:.3g} s in {}", total.count(), watch_.call);
  }
}

}  // namespace crosslane::engine
