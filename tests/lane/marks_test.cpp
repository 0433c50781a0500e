// Marks: what was asked for lately is known with what it comes behind, and what was not is forgotten.
#include "lane/marks.h"

#include "gpu/driver.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace crosslane::lane {
namespace {

class MarksTest : public testing::Test {
 protected:
  MarksTest() {
    driver_.ctx_get_current = [](CUcontext*) { return CUDA_ERROR_NOT_INITIALIZED; };
  }
  [[nodiscard]] Marks::Before something() const { return std::make_shared<const Earlier>(driver_); }
  /// So many others are asked for, which are all new.
  void ask_for_others(std::uint64_t count) {
    for (; count != 0; --count, ++other_) {
      EXPECT_EQ(marks_.find(other_), nullptr);
      marks_.add(other_, nullptr);
    }
  }

  gpu::Driver driver_;
  Marks marks_;
  std::uint64_t other_ = 1000;
};

TEST_F(MarksTest, WhatWasAddedIsFoundWithWhatItComesBehind) {
  const Marks::Before before = something();
  EXPECT_EQ(marks_.find(1), nullptr);
  marks_.add(1, before);
  marks_.add(2, nullptr);
  EXPECT_EQ(marks_.find(3), nullptr);
  ASSERT_NE(marks_.find(1), nullptr);
  EXPECT_EQ(*marks_.find(1), before);
  ASSERT_NE(marks_.find(2), nullptr);
  EXPECT_EQ(*marks_.find(2), nullptr);
}

TEST_F(MarksTest, WhatIsOverIsLetGoByWhoFoundIt) {
  Marks::Before before = something();
  const std::weak_ptr<const Earlier> held = before;
  marks_.add(1, std::move(before));
  marks_.find(1)->reset();
  EXPECT_TRUE(held.expired());
  ASSERT_NE(marks_.find(1), nullptr);
  EXPECT_EQ(*marks_.find(1), nullptr);
}

TEST_F(MarksTest, ALaterMarkTakesAnEarlierOnesPlace) {
  marks_.add(1, something());
  const Marks::Before later = something();
  marks_.add(1, later);
  EXPECT_EQ(*marks_.find(1), later);
  // Of an age in which the earlier one still stands, too.
  ask_for_others(Marks::most);
  const Marks::Before last = something();
  marks_.add(1, last);
  EXPECT_EQ(*marks_.find(1), last);
  for (int ages = 0; ages < 3; ++ages) {
    ask_for_others(Marks::most - 1);
    ASSERT_NE(marks_.find(1), nullptr);
    EXPECT_EQ(*marks_.find(1), last);
  }
}

TEST_F(MarksTest, WhatIsAskedForAmongManyOthersIsKept) {
  const Marks::Before before = something();
  // Wherever its age ends meanwhile.
  for (std::uint64_t others = 1; others < Marks::most; others = 2 * others + 1) {
    marks_.add(1, before);
    for (std::uint64_t asked = 0; asked < 3 * Marks::most; asked += others) {
      ask_for_others(others);
      ASSERT_NE(marks_.find(1), nullptr) << "after " << others << " others";
      ASSERT_EQ(*marks_.find(1), before);
    }
  }
}

TEST_F(MarksTest, WhatIsNotAskedForIsForgotten) {
  Marks::Before before = something();
  const std::weak_ptr<const Earlier> held = before;
  marks_.add(1, std::move(before));
  ask_for_others(Marks::most - 1);
  EXPECT_FALSE(held.expired());
  ask_for_others(Marks::most + 1);
  EXPECT_TRUE(held.expired()) << "it would grow with all allocations of a program";
  EXPECT_EQ(marks_.find(1), nullptr);
}

TEST_F(MarksTest, NothingIsKnownOnceTheyAreCleared) {
  Marks::Before before = something();
  const std::weak_ptr<const Earlier> held = before;
  marks_.add(1, before);
  ask_for_others(Marks::most);
  marks_.add(2, std::move(before));
  marks_.clear();
  EXPECT_TRUE(held.expired());
  EXPECT_EQ(marks_.find(1), nullptr);
  EXPECT_EQ(marks_.find(2), nullptr);
}

}  // namespace
}  // namespace crosslane::lane
