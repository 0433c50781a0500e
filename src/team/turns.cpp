// See turns.h.
#include "team/turns.h"

#include <algorithm>

namespace crosslane::team {

Turns::Expected::Expected(Turns& turns, const share::TeamPlace& place, std::uint64_t direct)
    : turns_(turns), place_(place), direct_(direct) {
  const std::lock_guard lock(turns_.mutex_);
  turns_.expected_.push_back(this);
}

Turns::Expected::~Expected() { started(); }

void Turns::Expected::started() noexcept {
  if (!expected_) return;
  expected_ = false;
  const std::lock_guard lock(turns_.mutex_);
  std::erase(turns_.expected_, this);
}

bool Turns::Expected::is_next() const {
  const std::uint64_t mine = *place_.turn(direct_);
  const std::lock_guard lock(turns_.mutex_);
  // Lower turns were given before this one: they are visible by now.
  return std::ranges::none_of(turns_.expected_, [&](const Expected* other) {
    const auto theirs = other->place_.turn(other->direct_);
    return theirs && *theirs < mine;
  });
}

}  // namespace crosslane::team
