// Bundle: what has to come behind one of the copies that wait does, and nothing else.
#include "lane/bundle.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace crosslane::lane {
namespace {

kernel::Part part(const Reach& to, const Reach& from) {
  kernel::Part made{};
  made.to = to.begin;
  made.from = from.begin;
  made.items = to.end - to.begin;
  made.word = 1;
  return made;
}

Reach bytes(std::uintptr_t begin, std::uintptr_t count) { return {begin, begin + count}; }

TEST(BundleTest, OrderMattersWhereOneWritesWhatTheOtherTouches) {
  Bundle bundle;
  EXPECT_TRUE(bundle.empty());
  EXPECT_FALSE(bundle.precedes(bytes(100, 10), bytes(200, 10)));
  bundle.add(part(bytes(100, 10), bytes(200, 10)), bytes(100, 10), bytes(200, 10));
  EXPECT_FALSE(bundle.empty());
  constexpr std::uintptr_t elsewhere = 1000;
  // Neighbours do not touch.
  EXPECT_FALSE(bundle.precedes(bytes(110, 5), bytes(elsewhere, 5)));
  EXPECT_FALSE(bundle.precedes(bytes(95, 5), bytes(elsewhere, 5)));
  // Twice written, read behind a write, written behind a read.
  EXPECT_TRUE(bundle.precedes(bytes(109, 5), bytes(elsewhere, 5)));
  EXPECT_TRUE(bundle.precedes(bytes(elsewhere, 5), bytes(96, 5)));
  EXPECT_TRUE(bundle.precedes(bytes(205, 1), bytes(elsewhere, 1)));
  EXPECT_TRUE(bundle.precedes(bytes(50, 500), bytes(elsewhere, 500)));
  // Both read it.
  EXPECT_FALSE(bundle.precedes(bytes(elsewhere, 10), bytes(200, 10)));
  bundle.clear();
  EXPECT_TRUE(bundle.empty());
  EXPECT_FALSE(bundle.precedes(bytes(109, 5), bytes(elsewhere, 5)));
}

TEST(BundleTest, ThereIsRoomForWhatOneLaunchTakes) {
  Bundle bundle;
  for (std::uintptr_t i = 0; i < kernel::TogetherParameters::limit; ++i) {
    const Reach to = bytes(100 + 10 * i, 10), from = bytes(100'000 + 10 * i, 10);
    ASSERT_FALSE(bundle.precedes(to, from));
    bundle.add(part(to, from), to, from);
  }
  EXPECT_TRUE(bundle.precedes(bytes(10, 1), bytes(20, 1)));
  EXPECT_EQ(bundle.parts().size(), kernel::TogetherParameters::limit);
  EXPECT_EQ(bundle.touched().size(), bundle.parts().size());
}

}  // namespace
}  // namespace crosslane::lane
