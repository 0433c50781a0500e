// ShortReceives: once decided it stays so.
#include "message/short_receives.h"

#include <gtest/gtest.h>

namespace crosslane::message {
namespace {

TEST(ShortReceivesTest, WhoLooksAtThemGoesOnDoingSo) {
  ShortReceives receives;
  EXPECT_FALSE(receives.are_looked_at());
  EXPECT_EQ(receives.least_looked_at(), header_bytes);
  EXPECT_TRUE(receives.look_at());
  EXPECT_EQ(receives.least_looked_at(), token_bytes);
  receives.leave(header_bytes - 1);  // which was seen to be none that might get a token
  EXPECT_TRUE(receives.are_looked_at());
  EXPECT_TRUE(receives.look_at());
}

TEST(ShortReceivesTest, WhoHasLeftOneNeverDoes) {
  ShortReceives receives;
  receives.leave(token_bytes);
  EXPECT_FALSE(receives.look_at());
  EXPECT_FALSE(receives.are_looked_at());
  EXPECT_EQ(receives.least_looked_at(), header_bytes);
}

TEST(ShortReceivesTest, OneWithoutRoomForATokenIsNoneOfThem) {
  ShortReceives receives;
  receives.leave(0);
  receives.leave(token_bytes - 1);
  EXPECT_TRUE(receives.look_at());
}

}  // namespace
}  // namespace crosslane::message
