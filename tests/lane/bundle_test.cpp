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

// A copy of a column of doubles, of a matrix at `base` with so many a row, to another one's.
Copy column(std::uintptr_t to, std::uintptr_t from, std::uintptr_t row, std::uintptr_t rows, std::uintptr_t wide = 1) {
  constexpr std::uintptr_t size = sizeof(double);
  const auto reach = [&](std::uintptr_t base) { return bytes(base, ((rows - 1) * row + wide) * size); };
  Copy made(reach(to), reach(from));
  made.part.items = rows * wide;
  made.part.word = size;
  made.part.loops_used = 1;
  made.part.divisor[0] = static_cast<std::uint32_t>(wide);
  made.part.to_stride[0] = made.part.from_stride[0] = static_cast<std::int64_t>(row * size);
  return made;
}

TEST(BundleTest, ColumnsOfOneMatrixDoNotMeet) {
  constexpr std::uintptr_t to = 4096, from = 1 << 20, row = 100, rows = 50, size = sizeof(double);
  const auto at = [&](std::uintptr_t c, std::uintptr_t wide = 1) {
    return column(to + c * size, from + c * size, row, rows, wide);
  };
  Bundle bundle;
  at(7).join(bundle);
  for (const std::uintptr_t c : {std::uintptr_t{0}, std::uintptr_t{6}, std::uintptr_t{8}, row - 1}) {
    EXPECT_FALSE(at(c).comes_behind(bundle)) << "column " << c;
    at(c).join(bundle);
  }
  EXPECT_FALSE(at(9, 3).comes_behind(bundle));
  EXPECT_TRUE(at(5, 3).comes_behind(bundle)) << "over columns that are there";
  EXPECT_TRUE(at(7).comes_behind(bundle));
  EXPECT_TRUE(column(to + 9 * size, from, 2 * row, rows).comes_behind(bundle)) << "of a matrix of other rows";
  EXPECT_TRUE(column(to + row * size - 4, from, row, rows).comes_behind(bundle)) << "half of one, and half of the next";
  // One element between columns, and one in a column.
  EXPECT_FALSE(Copy(bytes(to + (3 * row + 9) * size, size), bytes(0, size)).comes_behind(bundle));
  EXPECT_TRUE(Copy(bytes(to + (3 * row + 7) * size, size), bytes(0, size)).comes_behind(bundle));
  EXPECT_TRUE(Copy(bytes(to + 3 * row * size, row * size), bytes(0, row * size)).comes_behind(bundle)) << "a row";
  // Backwards, from its last row on.
  Copy back = at(10);
  back.part.to += (rows - 1) * row * size;
  back.part.to_stride[0] = -back.part.to_stride[0];
  EXPECT_FALSE(back.comes_behind(bundle));
  back.part.to -= 2 * size;
  EXPECT_TRUE(back.comes_behind(bundle));
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
