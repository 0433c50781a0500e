// Steps of host-driven collectives, as they stand in a directory entry (board.h): which call of the team, which part of its data, and
// at which level of a tree its writer gives. It must not know what is done at a step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crosslane::share {

/// Grows with the call, then with the part: a flag never falls back, and so needs no clearing between calls; that its lowest part
/// changes with each call is what a flag that toggles would tell. The level (from 1 for leaves of a binomial tree) is the same in all
/// parts of a member's call, so that who waits for a step also checks that its giver stands where it should.
class Step {
 public:
  /// Levels up to 7; of calls there may be 2 to the 38th.
  static constexpr unsigned level_bits = 3, part_bits = 23;
  static constexpr std::size_t most_parts = (std::size_t{1} << part_bits) - 1;

  /// `call` from 1, `part` from 0 up to below most_parts.
  constexpr Step(std::uint64_t call, std::size_t part, int level) noexcept
      : value_(((call << part_bits | (part + 1)) << level_bits) | static_cast<std::uint64_t>(level)) {}

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  /// Of the two events of a member, the one that is recorded for this part.
  [[nodiscard]] constexpr std::size_t parity() const noexcept { return (value_ >> level_bits) % 2; }

 private:
  std::uint64_t value_;
};

}  // namespace crosslane::share
