// Balance: two ranks that decide for themselves, in any order and one of them perhaps long before the other, give both GPUs about the same to do; and
// where only one of them sends, its GPU does all.
#include "message/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>

namespace crosslane::message {
namespace {

/// What two ranks do with messages that go both ways, none of which is over before all have begun.
class Pair {
 public:
  Pair(std::array<std::size_t, 2> messages, std::size_t bytes) : left_(messages), bytes_(bytes) {}

  [[nodiscard]] bool has_one(std::size_t rank) const { return left_[rank] != 0; }
  /// The rank reads the next one that comes to it, as it does where the other one does not wait yet.
  void read(std::size_t rank) { take(rank, seen_[rank].reads, seen_[1 - rank].is_read); }
  /// Or lets that write it, where that has less to do.
  void decide(std::size_t rank) {
    if (seen_[rank].other_has_more()) return read(rank);
    take(rank, seen_[rank].asked, seen_[1 - rank].writes);
  }
  /// Bytes that the rank's GPU moves.
  [[nodiscard]] std::size_t moved_by(std::size_t rank) const { return seen_[rank].reads + seen_[rank].writes; }

 private:
  void take(std::size_t rank, std::size_t& here, std::size_t& there) {
    --left_[rank];
    here += bytes_;
    there += bytes_;
  }

  std::array<std::size_t, 2> left_;
  const std::size_t bytes_;
  std::array<Balance, 2> seen_{};
};

TEST(BalanceTest, InAnyOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 10000; ++round) {
    const std::size_t messages = 1 + random() % 128, bytes = 1 + random() % (std::size_t{1} << 26);
    Pair pair({messages, messages}, bytes);
    std::array<bool, 2> waits{};
    // One of them is faster, by any factor.
    const double share = static_cast<double>(random() % 1001) / 1000;
    const bool one_by_one = random() % 4 == 0;
    std::size_t passing = random() % 4;
    while (pair.has_one(0) || pair.has_one(1)) {
      std::size_t rank = std::bernoulli_distribution(share)(random) ? 0 : 1;
      if (one_by_one && pair.has_one(0)) rank = 0;
      if (!pair.has_one(rank)) rank = 1 - rank;
      if (passing != 0) {
        --passing;
        pair.read(rank);
        continue;
      }
      waits[rank] = true;
      if (waits[1 - rank])
        pair.decide(rank);
      else
        pair.read(rank);
    }
    const auto [least, most] = std::minmax({pair.moved_by(0), pair.moved_by(1)});
    ASSERT_EQ(least + most, 2 * messages * bytes);
    // What one had read before the other came is all that cannot be evened out: at most three.
    ASSERT_LE(most - least, 4 * bytes + 2 * messages * bytes / 32) << messages << " messages";
  }
}

TEST(BalanceTest, OneWay) {
  Pair pair({100, 0}, 1 << 24);
  while (pair.has_one(0)) pair.decide(0);
  EXPECT_EQ(pair.moved_by(0), 0U);
  EXPECT_EQ(pair.moved_by(1), std::size_t{100} << 24);
}

}  // namespace
}  // namespace crosslane::message
