// What keeps busy what moves it: long transfers by their number, short ones by their bytes; and what is over does not.
#include "message/under_way.h"

#include "engine/completion.h"

#include <gtest/gtest.h>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>

namespace crosslane::message {
namespace {

class UnderWayTest : public testing::Test {
 protected:
  void begin(std::size_t bytes) {
    under_way_.add(bytes, engine::Completion::of(words_.at(begun_), 1));
    ++begun_;
  }
  void end(std::size_t which) { words_.at(which).store(1); }

  std::array<std::atomic<std::uint64_t>, 64> words_{};
  std::size_t begun_ = 0;
  UnderWay under_way_;
};

TEST_F(UnderWayTest, LongOnesKeepItBusyByTheirNumber) {
  for (std::size_t i = 0; i < UnderWay::enough_transfers; ++i) {
    EXPECT_FALSE(under_way_.is_enough()) << i;
    begin(UnderWay::enough_bytes);
  }
  EXPECT_TRUE(under_way_.is_enough());
}

TEST_F(UnderWayTest, ShortOnesDoByTheirBytes) {
  constexpr std::size_t many = 4 * UnderWay::enough_transfers;
  for (std::size_t i = 0; i < many; ++i) {
    EXPECT_FALSE(under_way_.is_enough()) << i;
    begin(UnderWay::enough_bytes / many);
  }
  EXPECT_TRUE(under_way_.is_enough());
  begin(1);
  EXPECT_TRUE(under_way_.is_enough());
}

TEST_F(UnderWayTest, WhatIsOverDoesNotCount) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(seed);
  std::array<std::size_t, 64> bytes{};
  std::size_t left = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes.at(i) = random() % 1000;
    begin(bytes.at(i));
    left += bytes.at(i);
    if (const std::size_t ends = random() % (i + 1); random() % 2 == 0 && words_.at(ends).load() == 0) {
      end(ends);
      left -= bytes.at(ends);
    }
    under_way_.forget_what_is_over();
    EXPECT_EQ(under_way_.bytes(), left);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) end(i);
  under_way_.forget_what_is_over();
  EXPECT_EQ(under_way_.bytes(), 0U);
  EXPECT_FALSE(under_way_.is_enough());
}

}  // namespace
}  // namespace crosslane::message
