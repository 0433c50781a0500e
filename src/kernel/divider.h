// Division by a number that the host knows: a multiplication and a shift in place of a GPU's slow division.
// Granlund and Montgomery: Division by Invariant Integers using Multiplication, PLDI 1994; exact below 2^31.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel {

struct Divider {
  std::uint64_t divisor = 1;
  std::uint32_t multiplier = 0;  ///< 0 where the divisor is 2^31 or more: then every quotient is 0
  std::uint32_t shift = 0;

  static constexpr std::uint64_t limit = std::uint64_t{1} << 31;

  static constexpr Divider by(std::uint64_t divisor) {
    Divider result;
    result.divisor = divisor;
    if (divisor >= limit) return result;
    std::uint32_t log = 0;
    while ((std::uint64_t{1} << log) < divisor) ++log;
    result.shift = 31 + log;
    // At most 2^32 - 1: divisor > 2^(log - 1), and for a power of two it is 2^31.
    result.multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << result.shift) + divisor - 1) / divisor);
    return result;
  }

  /// number / divisor for number < limit.
  CROSSLANE_DEVICE std::uint64_t quick(std::uint32_t number) const {
    return (static_cast<std::uint64_t>(number) * multiplier) >> shift;
  }
  /// The same for any number.
  CROSSLANE_DEVICE std::uint64_t any(std::uint64_t number) const { return number / divisor; }
};

}  // namespace crosslane::kernel
