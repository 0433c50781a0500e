// Tasks and completions alone: laziness, results, exceptions, lifetimes, stack depth.
#include "base/error.h"
#include "engine/engine.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace crosslane::engine;
using namespace std::chrono_literals;

class TaskTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  const crosslane::mpi::Functions below_ = fake::functions();
  Engine engine_{below_, 0};
};

Task<int> answer(int value) { co_return value; }

Task<std::unique_ptr<std::string>> boxed(std::string text) { co_return std::make_unique<std::string>(std::move(text)); }

Task<int> fail(std::string text) {
  throw std::runtime_error(text);
  co_return 0;
}

Task<> note(bool& started) {
  started = true;
  co_return;
}

TEST_F(TaskTest, ResultsReachTheAwaiter) {
  int sum = 0;
  std::string text;
  const auto body = [](int& total, std::string& out) -> Task<> {
    total = co_await answer(20) + co_await answer(22);
    out = *co_await boxed("moved");
  };
  engine_.wait(engine_.spawn(body(sum, text)), {.call = "test"});
  EXPECT_EQ(sum, 42);
  EXPECT_EQ(text, "moved");
  EXPECT_TRUE(engine_.idle());
}

TEST_F(TaskTest, StartsWhenAwaited) {
  bool started = false;
  { const Task<> never = note(started); }
  EXPECT_FALSE(started);
  const Completion finished = engine_.spawn(note(started));
  EXPECT_TRUE(started) << "spawn starts it where no other thread is in the engine";
  EXPECT_TRUE(finished.done());
}

TEST_F(TaskTest, ExceptionsReachTheAwaiterAndTheWaiter) {
  bool caught = false;
  const auto body = [](bool& seen) -> Task<> {
    try {
      co_await fail("inner");
    } catch (const std::runtime_error& problem) {
      seen = std::string{"inner"} == problem.what();
    }
    co_await fail("outer");
  };
  const Completion finished = engine_.spawn(body(caught));
  EXPECT_THROW(engine_.wait(finished, {.call = "test"}), std::runtime_error);
  EXPECT_TRUE(caught);
}

TEST_F(TaskTest, FailureThatNobodySawIsLogged) {
  testing::internal::CaptureStderr();
  {
    const auto body = []() -> Task<> { co_await fail("lost and found"); };
    static_cast<void>(engine_.spawn(body()));
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("lost and found"), std::string::npos);
}

TEST_F(TaskTest, StackDoesNotGrowWithTheNumberOfTasks) {
  std::uint64_t sum = 0;
  const auto body = [](std::uint64_t& total) -> Task<> {
    for (int i = 0; i < 1'000'000; ++i) total += static_cast<std::uint64_t>(co_await answer(i & 1));
  };
  engine_.wait(engine_.spawn(body(sum)), {.call = "test"});
  EXPECT_EQ(sum, 500'000U);
}

TEST_F(TaskTest, AbandonedTasksDestroyTheirLocals) {
  std::atomic<std::uint64_t> word{0};
  const auto alive = std::make_shared<int>(1);
  Completion finished;
  {
    Engine engine{below_, 0};
    const auto inner = [](std::shared_ptr<int> held, const std::atomic<std::uint64_t>& until) -> Task<> {
      const auto local = held;
      co_await Completion::of(until, 1);
    };
    const auto outer = [](Task<> child) -> Task<> { co_await std::move(child); };
    finished = engine.spawn(outer(inner(alive, word)));
    EXPECT_EQ(alive.use_count(), 3);
    EXPECT_FALSE(finished.done());
  }
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_TRUE(finished.done());
  EXPECT_THROW(finished.rethrow(), crosslane::base::Error);
}

TEST_F(TaskTest, ParametersAreGoneBeforeTheTaskIsSeenFinished) {
  const auto alive = std::make_shared<int>(1);
  const auto body = [](std::shared_ptr<int>) -> Task<> { co_return; };
  const Completion finished = engine_.spawn(body(alive));
  ASSERT_TRUE(finished.done());
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_F(TaskTest, TasksSpawnTasks) {
  int finished = 0;
  const auto leaf = [](int& count) -> Task<> {
    ++count;
    co_return;
  };
  const auto root = [](Engine& engine, auto spawned, int& count) -> Task<> {
    std::vector<Completion> children;
    for (int i = 0; i < 10; ++i) children.push_back(engine.spawn(spawned(count)));
    co_await Completion::when_all(std::move(children));
    count *= 10;
  };
  engine_.wait(engine_.spawn(root(engine_, leaf, finished)), {.call = "test"});
  EXPECT_EQ(finished, 100);
}

TEST_F(TaskTest, BlockingInATaskIsAnError) {
  std::atomic<std::uint64_t> word{0};
  const auto body = [](Engine& engine, const std::atomic<std::uint64_t>& until) -> Task<> {
    engine.wait(Completion::of(until, 1), {.call = "MPI_Wait"});
    co_return;
  };
  EXPECT_THROW(engine_.wait(engine_.spawn(body(engine_, word)), {.call = "test"}), crosslane::base::Error);
}

TEST(Completion, WordsReachOrPassTheirValue) {
  std::atomic<std::uint64_t> word{6};
  const Completion completion = Completion::of(word, 7);
  EXPECT_FALSE(completion.done());
  word = 9;
  EXPECT_TRUE(completion.done());
  EXPECT_TRUE(Completion{}.done());
}

TEST(Completion, AllAndAny) {
  std::atomic<std::uint64_t> first{0};
  std::atomic<std::uint64_t> second{0};
  const std::vector<Completion> both{Completion::of(first, 1), Completion::of(second, 1)};
  const Completion all = Completion::when_all(both);
  const Completion any = Completion::when_any(both);
  EXPECT_FALSE(any.done());
  second = 1;
  EXPECT_TRUE(any.done());
  EXPECT_FALSE(all.done());
  first = 1;
  EXPECT_TRUE(all.done());
  EXPECT_TRUE(Completion::when_all({}).done());
  EXPECT_FALSE(Completion::when_any({}).done());
}

TEST(Completion, TimeComes) {
  const Completion soon = Completion::after(2ms);
  const Completion late = Completion::after(1h);
  EXPECT_FALSE(late.done());
  const auto start = crosslane::base::now();
  while (!soon.done()) {}
  EXPECT_GE(crosslane::base::now() - start, 1ms);
  EXPECT_FALSE(late.done());
}

}  // namespace
