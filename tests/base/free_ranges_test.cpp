// FreeRanges against a plain array of what is taken: random takes and returns, and all is one range again at the end.
#include "base/free_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace crosslane::base {
namespace {

TEST(FreeRanges, GivesWhatNobodyHas) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr std::size_t size = 1000;
  FreeRanges ranges(size);
  std::vector<bool> taken(size, false);
  std::vector<std::pair<std::size_t, std::size_t>> held;
  const auto longest = [&] {
    std::size_t best = 0, run = 0;
    for (const bool each : taken) best = std::max(best, run = each ? 0 : run + 1);
    return best;
  };
  for (int step = 0; step < 5000; ++step) {
    if (held.empty() || random() % 2 == 0) {
      const std::size_t wanted = 1 + random() % 120;
      const auto begin = ranges.take(wanted);
      ASSERT_EQ(begin.has_value(), longest() >= wanted);
      if (!begin) continue;
      for (std::size_t at = *begin; at < *begin + wanted; ++at) {
        ASSERT_FALSE(taken.at(at));
        taken[at] = true;
      }
      held.emplace_back(*begin, wanted);
    } else {
      std::swap(held[random() % held.size()], held.back());
      const auto [begin, length] = held.back();
      held.pop_back();
      ranges.give_back(begin, length);
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(begin), length, false);
    }
  }
  for (const auto& [begin, length] : held) ranges.give_back(begin, length);
  EXPECT_EQ(ranges.take(size), 0U);
}

TEST(FreeRanges, OfNothingHasNothing) {
  EXPECT_FALSE(FreeRanges().take(1));
  EXPECT_FALSE(FreeRanges(0).take(1));
}

}  // namespace
}  // namespace crosslane::base
