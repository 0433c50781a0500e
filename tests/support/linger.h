// A delay of very little, for ranks and threads that are to come in any order.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace crosslane::tests {

/// Gives the processor away so often, which takes a microsecond or less each; but where others have it for milliseconds then, no longer than
/// several times that. By the system's call: sched_yield may nap (support/polling/yield.cpp), which waits as long each time.
inline void linger(std::uint64_t turns) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds{5 * turns};
  for (; turns > 0 && std::chrono::steady_clock::now() < end; --turns) syscall(SYS_sched_yield);
}

}  // namespace crosslane::tests
