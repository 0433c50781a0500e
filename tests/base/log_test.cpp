// The logger's topics: which lines are printed, and what an unknown topic says; and a line that there is no memory for.
#include "base/log.h"
#include "base/error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

namespace {

constinit std::atomic<bool> none_left{false};

}  // namespace

// Not inlined: GCC would take free() for the wrong one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = none_left.load(std::memory_order_relaxed) ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using crosslane::base::Topic;
namespace base = crosslane::base;

TEST(Log, ErrorsAndWarningsAreAlwaysOn) {
  base::set_log_topics("");
  EXPECT_TRUE(base::log_enabled(Topic::error));
  EXPECT_TRUE(base::log_enabled(Topic::warning));
  EXPECT_FALSE(base::log_enabled(Topic::info));
  EXPECT_FALSE(base::log_enabled(Topic::route));
}

TEST(Log, TopicsAreSwitchedOnByName) {
  base::set_log_topics("route,debug");
  EXPECT_TRUE(base::log_enabled(Topic::route));
  EXPECT_TRUE(base::log_enabled(Topic::debug));
  EXPECT_FALSE(base::log_enabled(Topic::info));
  base::set_log_topics("all");
  EXPECT_TRUE(base::log_enabled(Topic::info));
  base::set_log_topics("");
}

TEST(Log, UnknownTopicIsAnError) {
  try {
    base::set_log_topics("route,verbose");
    FAIL() << "no error";
  } catch (const base::Error& error) {
    const std::string_view text = error.what();
    EXPECT_NE(text.find("verbose"), std::string_view::npos);
    EXPECT_NE(text.find("the topics are info, route, debug and all"), std::string_view::npos) << text;
  }
}

TEST(Log, LineNamesTheRank) {
  base::set_log_rank(3);
  testing::internal::CaptureStderr();
  base::log(Topic::error, "{} of {}", 1, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "crosslane [rank 3] error: 1 of 2\n");
  base::set_log_rank(-1);
}

TEST(Log, ALineThatThereIsNoMemoryForIsItsFormat) {
  const std::string argument(1000, 'x');
  base::set_log_topics("");  // as a process begins, with memory for what prints
  testing::internal::CaptureStderr();
  none_left = true;
  base::log(Topic::error, "lost: {}", argument);
  none_left = false;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "crosslane error (no memory for more): lost: {}\n");
}

}  // namespace
