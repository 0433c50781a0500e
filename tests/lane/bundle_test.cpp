// Bundle: what has to come behind one of the copies that wait does, and nothing else.
#include "lane/bundle.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace crosslane::lane {
namespace {

Reach bytes(std::uintptr_t begin, std::uintptr_t count) { return {begin, begin + count}; }

// A copy of contiguous bytes.
struct Copy {
  Copy(const Reach& to, const Reach& from) : touched{to, from} {
    part.to = to.begin;
    part.from = from.begin;
    part.items = to.end - to.begin;
    part.word = 1;
  }
  [[nodiscard]] bool comes_behind(const Bundle& bundle) const { return bundle.precedes(part, touched); }
  void join(Bundle& bundle) const { bundle.add(part, touched); }
  kernel::Part part{};
  Bundle::Touched touched;
};

TEST(BundleTest, OrderMattersWhereOneWritesWhatTheOtherTouches) {
  Bundle bundle;
  const Copy first(bytes(100, 10), bytes(200, 10));
  EXPECT_TRUE(bundle.empty());
  EXPECT_FALSE(first.comes_behind(bundle));
  first.join(bundle);
  EXPECT_FALSE(bundle.empty());
  constexpr std::uintptr_t elsewhere = 1000;
  // Neighbours do not touch.
  EXPECT_FALSE(Copy(bytes(110, 5), bytes(elsewhere, 5)).comes_behind(bundle));
  EXPECT_FALSE(Copy(bytes(95, 5), bytes(elsewhere, 5)).comes_behind(bundle));
  // Twice written, read behind a write, written behind a read.
  EXPECT_TRUE(Copy(bytes(109, 5), bytes(elsewhere, 5)).comes_behind(bundle));
  EXPECT_TRUE(Copy(bytes(elsewhere, 5), bytes(96, 5)).comes_behind(bundle));
  EXPECT_TRUE(Copy(bytes(205, 1), bytes(elsewhere, 1)).comes_behind(bundle));
  EXPECT_TRUE(Copy(bytes(50, 500), bytes(elsewhere, 500)).comes_behind(bundle));
  // Both read it.
  EXPECT_FALSE(Copy(bytes(elsewhere, 10), bytes(200, 10)).comes_behind(bundle));
  bundle.clear();
  EXPECT_TRUE(bundle.empty());
  EXPECT_FALSE(Copy(bytes(109, 5), bytes(elsewhere, 5)).comes_behind(bundle));
}

// Copies of so many bytes that touch nothing of each other.
std::size_t room_for(std::size_t length) {
  Bundle bundle;
  for (std::uintptr_t i = 0;; ++i) {
    const Copy next(bytes((2 * i + 1) * length, length), bytes((2 * i + 2) * length, length));
    if (next.comes_behind(bundle)) return i;
    next.join(bundle);
    EXPECT_EQ(bundle.parts().size(), i + 1);
  }
}

TEST(BundleTest, ThereIsRoomForWhatOneLaunchTakes) {
  EXPECT_EQ(room_for(10), std::size_t{kernel::TogetherParameters::limit});
  EXPECT_EQ(room_for(Bundle::most_bytes), Bundle::most_bytes_together / Bundle::most_bytes);
  EXPECT_EQ(room_for(2 * Bundle::most_bytes_together), 1U);
}

TEST(BundleTest, WhatIsGoneIsLeftOut) {
  Bundle bundle;
  for (std::uintptr_t i = 0; i < 9; ++i) Copy(bytes(1000 + 10 * i, 10), bytes(100'000 + 10 * i, 10)).join(bundle);
  bundle.drop_if([](const Bundle::Touched& touched) { return touched.read.begin % 20 == 0; });
  ASSERT_EQ(bundle.parts().size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(bundle.parts()[i].to, 1010 + 20 * i);
    EXPECT_EQ(bundle.parts()[i].from, 100'010 + 20 * i);
  }
}

}  // namespace
}  // namespace crosslane::lane
