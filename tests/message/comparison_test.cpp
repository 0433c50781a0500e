// When a way that may be held up rests, and for how long.
#include "message/comparison.h"

#include <gtest/gtest.h>

#include <chrono>

namespace crosslane::test {
namespace {

using message::Comparison;
using std::chrono::microseconds;

// So many of both ways: true if the quick one rests then.
bool done(Comparison& comparison, unsigned times, microseconds quick, microseconds usual, std::size_t kind = 0) {
  for (unsigned i = 0; i < times; ++i) {
    comparison.usual(kind, usual);
    if (comparison.quick(kind, quick)) return true;
  }
  return false;
}

// How many are done until it is tried again.
unsigned rest(Comparison& comparison) {
  unsigned count = 0;
  for (; !comparison.tries(0); ++count) comparison.begin();
  return count;
}

TEST(Comparison, TheQuickerWayGoesOn) {
  Comparison comparison(1);
  EXPECT_FALSE(done(comparison, 1000, microseconds{8}, microseconds{11}));
  EXPECT_FALSE(done(comparison, 1000, microseconds{11}, microseconds{11}));
  EXPECT_TRUE(comparison.tries(0));
}

TEST(Comparison, WithoutEnoughOfBothNothingIsSaid) {
  Comparison comparison(2);
  for (unsigned i = 0; i < 1000; ++i) EXPECT_FALSE(comparison.quick(0, microseconds{50}));
  for (unsigned i = 1; i < Comparison::enough; ++i) comparison.usual(0, microseconds{1});
  EXPECT_FALSE(comparison.tries(0)) << "with what would it be compared?";
  for (unsigned i = 0; i < 1000; ++i) EXPECT_FALSE(comparison.quick(0, microseconds{50}));
  comparison.usual(0, microseconds{1});
  EXPECT_TRUE(comparison.tries(0));
  EXPECT_FALSE(comparison.tries(1)) << "of that kind nothing is known";
  bool rests = false;
  for (unsigned i = 0; i < Comparison::enough; ++i) rests = comparison.quick(0, microseconds{50}) || rests;
  EXPECT_TRUE(rests);
}

TEST(Comparison, EachRestIsTwiceAsLong) {
  Comparison comparison(1);
  for (const unsigned calls : {256U, 512U, 1024U, 2048U, 4096U, 8192U, 8192U}) {
    EXPECT_TRUE(done(comparison, Comparison::enough, microseconds{20}, microseconds{11}));
    EXPECT_EQ(rest(comparison), calls);
  }
  // A few good ones do not make up for that.
  EXPECT_FALSE(done(comparison, Comparison::proven / 2, microseconds{8}, microseconds{11}));
  EXPECT_TRUE(done(comparison, Comparison::proven / 4, microseconds{200}, microseconds{11}));
  EXPECT_EQ(rest(comparison), 8192U);
  EXPECT_FALSE(done(comparison, Comparison::proven, microseconds{8}, microseconds{11}));
  EXPECT_TRUE(done(comparison, Comparison::proven, microseconds{200}, microseconds{11}));
  EXPECT_EQ(rest(comparison), 256U) << "as if never before";
}

TEST(Comparison, ItIsTheLastOnesThatCountButNoSingleOne) {
  Comparison comparison(1);
  EXPECT_FALSE(done(comparison, 1000, microseconds{8}, microseconds{11}));
  EXPECT_TRUE(done(comparison, 100, microseconds{30}, microseconds{11})) << "it has become slow";
  Comparison other(1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(done(other, 4 * Comparison::enough, microseconds{8}, microseconds{11}));
    EXPECT_FALSE(other.quick(0, std::chrono::milliseconds{20}));
  }
}

TEST(Comparison, WhatWasHeldUpRestsWithoutTimes) {
  Comparison comparison(1);
  comparison.rest();
  EXPECT_TRUE(comparison.rests());
  for (unsigned i = 0; i < Comparison::least_rest; ++i) comparison.begin();
  EXPECT_FALSE(comparison.rests());
  EXPECT_FALSE(done(comparison, Comparison::proven / 2, microseconds{8}, microseconds{11}));
  comparison.rest();
  EXPECT_EQ(rest(comparison), 2 * Comparison::least_rest);
}

TEST(Comparison, KindsAreComparedWithThemselves) {
  Comparison comparison(2);
  EXPECT_FALSE(done(comparison, 100, microseconds{8}, microseconds{11}, 0));
  EXPECT_FALSE(done(comparison, 100, microseconds{80}, microseconds{110}, 1));
  EXPECT_TRUE(done(comparison, 100, microseconds{120}, microseconds{110}, 1));
}

}  // namespace
}  // namespace crosslane::test
