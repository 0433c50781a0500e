// Where in memory something lies, as far as order and bounds ask.
#pragma once

#include <cstdint>

namespace crosslane::lane {

/// Addresses from `begin` to before `end`.
struct Reach {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool meets(const Reach& other) const noexcept { return begin < other.end && other.begin < end; }
  [[nodiscard]] bool holds(const Reach& other) const noexcept { return begin <= other.begin && other.end <= end; }
};

}  // namespace crosslane::lane
