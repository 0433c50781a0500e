// Backoff: longer rests each time, up to a limit; what was not in vain begins anew.
#include "base/backoff.h"

#include <gtest/gtest.h>

namespace crosslane::base {
namespace {

using Short = Backoff<3, 10>;

unsigned turns_until_awake(Short& backoff) {
  unsigned turns = 0;
  for (; backoff.rests(); ++turns) backoff.pass();
  return turns;
}

TEST(Backoff, RestsTwiceAsLongEachTime) {
  Short backoff;
  EXPECT_FALSE(backoff.rests());
  backoff.pass();
  EXPECT_FALSE(backoff.rests());
  for (const unsigned turns : {3U, 6U, 10U, 10U}) {
    backoff.rest();
    EXPECT_EQ(turns_until_awake(backoff), turns);
  }
}

TEST(Backoff, WhatWasNotInVainBeginsAnew) {
  Short backoff;
  backoff.rest();
  backoff.rest();
  backoff.prove();
  EXPECT_EQ(turns_until_awake(backoff), 6U);
  backoff.rest();
  EXPECT_EQ(turns_until_awake(backoff), 3U);
  backoff.rest();
  backoff.wake();
  EXPECT_FALSE(backoff.rests());
  backoff.rest();
  EXPECT_EQ(turns_until_awake(backoff), 3U);
}

}  // namespace
}  // namespace crosslane::base
