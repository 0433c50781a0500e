// The helper thread: it runs tasks, takes no signals, calls no MPI, and does no harm in a forked child.
#include "engine/helper_thread.h"
#include "base/error.h"
#include "engine/engine.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace {

using namespace crosslane::engine;
using crosslane::base::Error;

class HelperThreadTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  const crosslane::mpi::Functions below_ = fake::functions();
  Engine engine_{below_, 60};
};

TEST_F(HelperThreadTest, RunsTasksInAnotherThreadWithSignalsBlocked) {
  HelperThread helper;
  std::thread::id thread;
  bool blocked = false;
  const auto body = [](std::thread::id& id, bool& all_blocked) -> Task<> {
    id = std::this_thread::get_id();
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    all_blocked =
        sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGALRM) == 1;
    co_return;
  };
  engine_.wait(helper.spawn(body(thread, blocked)), {.call = "test"});
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_TRUE(blocked);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGUSR1), 0) << "the caller's mask is as it was";
}

TEST_F(HelperThreadTest, PingPongOfWords) {
  HelperThread helper;
  std::atomic<std::uint64_t> ping{0};
  std::atomic<std::uint64_t> pong{0};
  const auto body = [](const std::atomic<std::uint64_t>& in, std::atomic<std::uint64_t>& out) -> Task<> {
    for (std::uint64_t round = 1; round <= 100; ++round) {
      co_await Completion::of(in, round);
      out.store(round, std::memory_order_release);
    }
  };
  const Completion task = helper.spawn(body(ping, pong));
  for (std::uint64_t round = 1; round <= 100; ++round) {
    ping.store(round, std::memory_order_release);
    engine_.wait(Completion::of(pong, round), {.call = "test"});
  }
  engine_.wait(task, {.call = "test"});
}

// What sleeps until a task's time comes is woken by what is posted, by an earlier time, and by the end.
TEST_F(HelperThreadTest, SleepsUntilATimeAndIsWoken) {
  HelperThread helper;
  const auto sleep = [](std::chrono::nanoseconds time) -> Task<> { co_await Completion::after(time); };
  const Completion in_a_day = helper.spawn(sleep(std::chrono::hours{24}));
  for (int i = 0; i < 20; ++i) {
    const crosslane::base::Time begin = crosslane::base::now();
    engine_.wait(helper.spawn(sleep(std::chrono::milliseconds{i % 3})), {.call = "test"});
    EXPECT_GE(crosslane::base::now() - begin, std::chrono::milliseconds{i % 3});
  }
  EXPECT_FALSE(in_a_day.done());
}

TEST_F(HelperThreadTest, RefusesMpi) {
  HelperThread helper;
  MPI_Request handle;
  fake::make(handle, 0);
  const auto body = [](MPI_Request& request) -> Task<> { co_await Completion::of(&request); };
  EXPECT_THROW(engine_.wait(helper.spawn(body(handle)), {.call = "test"}), Error);
  EXPECT_EQ(fake::calls().test, 0);
}

TEST_F(HelperThreadTest, UnfinishedTasksEndWithAnError) {
  std::atomic<std::uint64_t> word{0};
  Completion task;
  {
    HelperThread helper;
    const auto body = [](const std::atomic<std::uint64_t>& until) -> Task<> { co_await Completion::of(until, 1); };
    task = helper.spawn(body(word));
  }
  ASSERT_TRUE(task.done());
  EXPECT_THROW(task.rethrow(), Error);
}

TEST_F(HelperThreadTest, AForkedChildNeitherHangsNorSpawns) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not follow forks of threaded programs";
#endif
  auto helper = std::make_unique<HelperThread>();
  std::atomic<std::uint64_t> word{0};
  const auto body = [](const std::atomic<std::uint64_t>& until) -> Task<> { co_await Completion::of(until, 1); };
  const Completion task = helper->spawn(body(word));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    int verdict = 1;
    try {
      static_cast<void>(helper->spawn(body(word)));
    } catch (const Error&) {
      verdict = 0;
    }
    helper.reset();
    _exit(verdict);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  word.store(1, std::memory_order_release);
  engine_.wait(task, {.call = "test"});
}

}  // namespace
