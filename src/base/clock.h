// The clock: the one place that asks what time it is, so that a simulation can bind it to simulated time.
#pragma once

#include <chrono>

namespace crosslane::base {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = std::chrono::nanoseconds;

[[nodiscard]] inline Time now() noexcept { return Clock::now(); }

}  // namespace crosslane::base
