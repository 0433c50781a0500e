// See turns.h.
#include "team/turns.h"

#include <utility>

namespace crosslane::team {

Turns::Expected::Expected(Turns& turns, const share::TeamPlace& place, std::uint64_t direct) noexcept
    : turns_(turns), place_(place), direct_(direct) {
  const std::lock_guard lock(turns_.mutex_);
  next_ = std::exchange(turns_.first_, this);
}

Turns::Expected::~Expected() { started(); }

void Turns::Expected::started() noexcept {
  if (!expected_) return;
  expected_ = false;
  const std::lock_guard lock(turns_.mutex_);
  Expected** link = &turns_.first_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
}

bool Turns::Expected::is_next() const {
  const std::uint64_t mine = *place_.turn(direct_);
  const std::lock_guard lock(turns_.mutex_);
  // Lower turns were given before this one: they are visible by now.
  for (const Expected* other = turns_.first_; other != nullptr; other = other->next_) {
    const auto theirs = other->place_.turn(other->direct_);
    if (theirs && *theirs < mine) return false;
  }
  return true;
}

}  // namespace crosslane::team
