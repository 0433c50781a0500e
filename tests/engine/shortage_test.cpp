// The engine where memory is short, whichever allocation that meets: a task has begun or it has not, and none is lost.
#include "engine/engine.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace {

// How many more of this program's succeed until one fails; negative: none does.
constinit std::atomic<int> before_failure{-1};

}  // namespace

// Not inlined: GCC would take free() for the wrong one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (before_failure.load(std::memory_order_relaxed) >= 0 && before_failure.fetch_sub(1) == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace crosslane::engine;

class ShortageTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  /// False where its allocation of that number failed; true where it has not so many.
  template <class Body>
  static bool succeeds(int allocation, Body body) {
    before_failure = allocation;
    try {
      body();
    } catch (const std::bad_alloc&) {
      before_failure = -1;
      return false;
    }
    return before_failure.exchange(-1) >= 0;
  }

  const crosslane::mpi::Functions below_ = fake::functions();
};

Task<> note(std::shared_ptr<int> started) {
  ++*started;
  co_return;
}

Task<> note_later(const std::atomic<std::uint64_t>& word, std::shared_ptr<int> ended) {
  co_await Completion::of(word, 1);
  ++*ended;
}

TEST_F(ShortageTest, WhatCannotBeSpawnedDoesNotBegin) {
  int failures = 0;
  for (bool succeeded = false; !succeeded; ++failures) {
    Engine engine{below_, 0};
    const auto started = std::make_shared<int>(0);
    Task<> task = note(started);
    succeeded = succeeds(failures, [&] { static_cast<void>(engine.spawn(std::move(task))); });
    for (int turn = 0; turn < 3; ++turn) engine.progress();
    EXPECT_EQ(*started, succeeded ? 1 : 0) << "allocation " << failures;
    EXPECT_TRUE(engine.idle()) << "allocation " << failures;
    EXPECT_EQ(started.use_count(), 1) << "allocation " << failures;
  }
  EXPECT_GT(failures, 2) << "nothing was allocated";
}

TEST_F(ShortageTest, ATurnThatFailsLosesNoTask) {
  constexpr int tasks = 9;
  int failures = 0;
  for (bool succeeded = false; !succeeded; ++failures) {
    Engine engine{below_, 0};
    std::atomic<std::uint64_t> word{0};
    const auto ended = std::make_shared<int>(0);
    for (int i = 0; i < tasks; ++i) static_cast<void>(engine.spawn(note_later(word, ended)));
    word = 1;
    succeeded = succeeds(failures, [&] { engine.progress(); });
    for (int turn = 0; turn < 3; ++turn) engine.progress();
    EXPECT_EQ(*ended, tasks) << "allocation " << failures;
    EXPECT_TRUE(engine.idle()) << "allocation " << failures;
  }
  EXPECT_GT(failures, 1) << "nothing was allocated";
}

}  // namespace
