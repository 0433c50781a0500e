// What a thread that spins tells its processor: that the other thread of its core may go ahead.
#pragma once

namespace crosslane::base {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace crosslane::base
