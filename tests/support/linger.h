// A delay of very little, for ranks and threads that are to come in any order.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace crosslane::tests {

/// Gives the processor away so often. By the system's call: sched_yield may nap (support/polling/yield.cpp), which waits as long each time.
inline void linger(std::uint64_t turns) {
  for (; turns > 0; --turns) syscall(SYS_sched_yield);
}

}  // namespace crosslane::tests
