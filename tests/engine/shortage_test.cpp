// The engine where memory is short, whichever allocation that meets: a task has begun or it has not, and none is lost.
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

// How many more of this program's succeed until one fails; negative: none does.
constinit std::atomic<int> before_failure{-1};
constinit std::atomic<bool> none_left{false};

}  // namespace

// Not inlined: GCC would take free() for the wrong one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (none_left.load(std::memory_order_relaxed)) throw std::bad_alloc();
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

Task<> note_later(const std::atomic<std::uint64_t>& word, std::atomic<int>& ended) {
  for (std::uint64_t value = 1; value <= 3; ++value) {
    co_await Completion::of(word, value).or_after(std::chrono::hours{1});
    co_await Completion::after(std::chrono::microseconds{1});
  }
  ++ended;
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

struct Counted {
  explicit Counted(int& count) : alive(count) { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
  int& alive;
};

Task<> await_request(MPI_Request& handle, int& alive) {
  const Counted counted(alive);
  co_await Completion::of(&handle);
}

// Tasks refer to what is on the stack of who runs them.
TEST_F(ShortageTest, RunLeavesNoTaskBehind) {
  int failures = 0;
  for (bool succeeded = false; !succeeded; ++failures) {
    Engine engine{below_, 0};
    MPI_Request handle;
    fake::make(handle, 3);
    int alive = 0;
    succeeded = succeeds(failures, [&] { engine.run(await_request(handle, alive), {.call = "test"}); });
    EXPECT_EQ(alive, 0) << "allocation " << failures;
    EXPECT_TRUE(engine.idle()) << "allocation " << failures;
  }
  EXPECT_GT(failures, 4) << "nothing was allocated";
}

constexpr int tasks = 9;

TEST_F(ShortageTest, ATurnAndWhatSuspendsInItNeedNoMemory) {
  Engine engine{below_, 0};
  std::atomic<std::uint64_t> word{0};
  std::atomic<int> ended{0};
  for (int i = 0; i < tasks; ++i) static_cast<void>(engine.spawn(note_later(word, ended)));
  none_left = true;
  for (word = 1; word < 3; ++word) engine.progress();
  while (!engine.idle()) engine.progress();
  none_left = false;
  EXPECT_EQ(ended, tasks);
}

TEST_F(ShortageTest, TheHelperThreadGoesOn) {
  HelperThread helper;
  std::atomic<std::uint64_t> word{0};
  std::atomic<int> ended{0};
  std::vector<Completion> all;
  for (int i = 0; i < tasks; ++i) all.push_back(helper.spawn(note_later(word, ended)));
  none_left = true;
  word = 3;
  for (const Completion& each : all)
    while (!each.done()) std::this_thread::yield();
  none_left = false;
  Engine engine{below_, 60};
  engine.wait(helper.spawn(note_later(word, ended)), {.call = "what is posted afterwards"});
  EXPECT_EQ(ended, tasks + 1);
}

}  // namespace
