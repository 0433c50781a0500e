// Comparison: whether a way of doing something that is quick by itself, but may be held up, is quicker than the usual way: by what both took of late.
// If it is not, or was held up as a whole, it rests, for longer each time, since trying it has its price. It must not know what is done.
#pragma once

#include "base/backoff.h"
#include "base/clock.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace crosslane::message {

/// For one thread at a time.
class Comparison {
 public:
  /// Times of each way before they are compared; how many things are done until the way is tried again, at first and at most; and after how
  /// many without a rest the first rest is a short one again.
  static constexpr unsigned enough = 8, least_rest = 256, most_rest = 8192, proven = 64;

  /// `kinds` of things, whose times have nothing to do with each other.
  explicit Comparison(std::size_t kinds) : kinds_(kinds) {}

  /// One more is done, in whatever way.
  void begin() noexcept { backoff_.pass(); }
  [[nodiscard]] bool rests() const noexcept { return backoff_.rests(); }
  /// Whether the quick way is to be tried: it does not rest, and there is something to compare it with.
  [[nodiscard]] bool tries(std::size_t kind) const noexcept { return !rests() && kinds_[kind].usual.seen >= enough; }

  /// What one took by the usual way.
  void usual(std::size_t kind, base::Duration time) noexcept { kinds_[kind].usual.add(time); }
  /// The same by the quick way. True: it rests from now on.
  bool quick(std::size_t kind, base::Duration time) noexcept {
    Kind& of = kinds_[kind];
    of.quick.add(time);
    if (of.quick.seen % enough != 0 || of.usual.seen < enough) return false;
    if (of.quick.median() <= of.usual.median()) {
      if (of.quick.seen >= proven) backoff_.prove();
      return false;
    }
    rest();
    return true;
  }
  /// The quick way was found to be held up, or to hold up others: it rests.
  void rest() noexcept {
    backoff_.rest();
    for (Kind& each : kinds_) each.quick.seen = 0;
  }

 private:
  // The last ones: single ones may be held up by anything.
  struct Times {
    unsigned seen = 0;
    std::array<base::Duration, enough> last{};
    void add(base::Duration one) noexcept { last[seen++ % enough] = one; }
    [[nodiscard]] base::Duration median() const noexcept {
      auto sorted = last;
      std::ranges::nth_element(sorted, sorted.begin() + enough / 2);
      return sorted[enough / 2];
    }
  };
  struct Kind {
    Times quick, usual;
  };
  std::vector<Kind> kinds_;
  base::Backoff<least_rest, most_rest> backoff_;
};

}  // namespace crosslane::message
