// The engine in one thread: requests and their verdicts, when it sleeps, when it pokes MPI, what the watchdog says.
#include "engine/engine.h"
#include "base/error.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using namespace crosslane::engine;
using namespace std::chrono_literals;
namespace mpi = crosslane::mpi;

class EngineTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { EXPECT_FALSE(fake::calls().overlapped) << "two threads tested requests at once"; }
  const mpi::Functions below_ = fake::functions();
};

TEST_F(EngineTest, RequestsGiveHandleStatusAndCode) {
  Engine engine{below_, 0};
  for (const int tests : {0, 1, 5}) {
    MPI_Request handle;
    MPI_Status status{};
    status.MPI_ERROR = 77;
    fake::make(handle, tests).source = 3;
    const Completion completion = Completion::of(&handle, &status);
    engine.wait(completion, {.call = "MPI_Wait"});
    EXPECT_EQ(handle, fake::null_handle());
    EXPECT_EQ(status.MPI_SOURCE, 3);
    EXPECT_EQ(status.MPI_ERROR, 77) << "MPI_Wait leaves it alone";
    EXPECT_EQ(completion.code(), mpi::success);
    EXPECT_TRUE(engine.idle());
  }
}

TEST_F(EngineTest, FailedRequestsGiveTheirOwnCode) {
  Engine engine{below_, 0};
  for (const int tests : {0, 3}) {
    MPI_Request good;
    MPI_Request bad;
    fake::make(good, tests);
    fake::make(bad, tests).error = mpi::err_truncate;
    const Completion first = Completion::of(&good);
    const Completion second = Completion::of(&bad);
    const Completion both = Completion::when_all({first, second});
    engine.wait(both, {.call = "MPI_Waitall"});
    EXPECT_EQ(first.code(), mpi::success);
    EXPECT_EQ(second.code(), mpi::err_truncate);
    EXPECT_EQ(both.code(), mpi::err_truncate);
  }
}

TEST_F(EngineTest, NullAndInactiveRequestsAreDone) {
  Engine engine{below_, 0};
  MPI_Request none = fake::null_handle();
  MPI_Request inactive;
  MPI_Request pending;
  fake::Request& request = fake::make(inactive, 0);
  request.active = false;
  request.persistent = true;
  const MPI_Request before = inactive;
  fake::make(pending, 4);
  engine.wait(Completion::when_all({Completion::of(&pending), Completion::of(&none), Completion::of(&inactive)}),
              {.call = "test"});
  EXPECT_EQ(inactive, before);
}

TEST_F(EngineTest, ARequestThatNobodyWaitsForAnyMoreIsTheUsersAgain) {
  Engine engine{below_, 0};
  std::atomic<std::uint64_t> word{1};
  MPI_Request handle;
  fake::Request& request = fake::make(handle, -1);
  const MPI_Request before = handle;
  MPI_Request other;
  fake::make(other, 2);
  {
    const Completion slow = Completion::of(&handle);
    engine.wait(Completion::when_any({slow, Completion::of(&other)}), {.call = "test"});
    EXPECT_FALSE(slow.done());
    EXPECT_FALSE(engine.idle());
  }
  engine.progress();
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(handle, before);
  request.tests_left = 0;
  engine.wait(Completion::of(&handle), {.call = "test"});
  EXPECT_EQ(handle, fake::null_handle());
}

TEST_F(EngineTest, CancelsRequestsItself) {
  Engine engine{below_, 0};
  MPI_Request early;
  MPI_Request late;
  MPI_Request done;
  fake::make(early, -1);
  fake::make(late, -1);
  fake::make(done, 0);
  const Completion first = Completion::of(&early);
  const Completion second = Completion::of(&late);
  const Completion third = Completion::of(&done);
  first.cancel();
  engine.wait(Completion::when_any({first, second}), {.call = "test"});
  EXPECT_TRUE(first.done());
  EXPECT_FALSE(second.done());
  second.cancel();
  engine.wait(second, {.call = "test"});
  EXPECT_EQ(fake::calls().cancel, 2);
  engine.wait(third, {.call = "test"});
  third.cancel();
  Completion{}.cancel();
  engine.progress();
  EXPECT_EQ(fake::calls().cancel, 2);
}

// The handles change hands as they complete: another thread's wish must not reach MPI by a copy of one.
TEST_F(EngineTest, CancelsForOtherThreadsInTheEngineAlone) {
  Engine engine{below_, 0};
  for (int round = 0; round < 200; ++round) {
    MPI_Request handle;
    fake::make(handle, round % 2 == 0 ? -1 : round);
    const Completion completion = Completion::of(&handle);
    std::thread other([&] { completion.cancel(); });
    engine.wait(completion, {.call = "test"});
    other.join();
    EXPECT_EQ(handle, fake::null_handle());
  }
}

TEST_F(EngineTest, TasksAwaitRequests) {
  Engine engine{below_, 0};
  std::vector<MPI_Request> handles(100);
  for (std::size_t i = 0; i < handles.size(); ++i)
    fake::make(handles[i], static_cast<int>(i % 7)).source = static_cast<int>(i);
  int sum = 0;
  const auto body = [](MPI_Request& handle, int& total) -> Task<> {
    MPI_Status status{};
    const int code = co_await Completion::of(&handle, &status);
    EXPECT_EQ(code, mpi::success);
    total += status.MPI_SOURCE;
  };
  std::vector<Completion> tasks;
  for (MPI_Request& handle : handles) tasks.push_back(engine.spawn(body(handle, sum)));
  engine.wait(Completion::when_all(tasks), {.call = "test"});
  EXPECT_EQ(sum, 99 * 100 / 2);
}

TEST_F(EngineTest, SleepsInMpiOnlyWhereToldAndOnlyMpiIsPending) {
  const auto body = [](MPI_Request& handle) -> Task<> { co_await Completion::of(&handle); };
  for (const MpiIdle idle : {MpiIdle::poll, MpiIdle::sleep}) {
    fake::reset();
    Engine engine{below_, 0, idle};
    MPI_Request handle;
    fake::make(handle, 1000);
    engine.wait(engine.spawn(body(handle)), {.call = "test"});
    EXPECT_EQ(fake::calls().waitsome > 0, idle == MpiIdle::sleep);

    fake::reset();
    fake::make(handle, 1000);
    engine.wait(Completion::when_all({Completion::of(&handle), Completion::after(1ms)}), {.call = "test"});
    EXPECT_EQ(fake::calls().testsome > 0, true);
  }
}

// A wait for a word that comes once MPI was asked for messages three times.
void expect_progress(const mpi::Functions& below, void (Engine::*wait)(const Completion&, const Watch&)) {
  Engine engine{below, 0};
  engine.keep_mpi_progressing(MPI_Comm{});
  std::atomic<std::uint64_t> word{0};
  std::thread peer{[&] {
    while (fake::calls().iprobe < 3) std::this_thread::yield();
    word.store(1, std::memory_order_release);
  }};
  (engine.*wait)(Completion::of(word, 1), {.call = "MPI_Allreduce"});
  peer.join();
  EXPECT_GE(fake::calls().iprobe, 3);
}

TEST_F(EngineTest, MpiProgressesWhileAWordIsAwaited) { expect_progress(below_, &Engine::wait); }

TEST_F(EngineTest, AWaitApartLetsMpiRestNotForEver) { expect_progress(below_, &Engine::wait_apart); }

TEST_F(EngineTest, WatchdogNamesTheCallAgainAndAgain) {
  Engine engine{below_, 0.05};
  std::atomic<std::uint64_t> word{0};
  testing::internal::CaptureStderr();
  const Watch watch{.call = "MPI_Allreduce",
                    .communicator = "MPI_COMM_WORLD",
                    .sequence = 17,
                    .peer = 2,
                    .details = [](const void* text) { return std::string{static_cast<const char*>(text)}; },
                    .context = "missing ranks 1, 4"};
  engine.wait(Completion::when_any({Completion::of(word, 1), Completion::after(3s)}), watch);
  const std::string lines = testing::internal::GetCapturedStderr();
  const std::string expected = "s in MPI_Allreduce on MPI_COMM_WORLD, call 17, peer 2: missing ranks 1, 4";
  const auto first = lines.find(expected);
  ASSERT_NE(first, std::string::npos) << lines;
  EXPECT_NE(lines.find(expected, first + 1), std::string::npos) << lines;
}

TEST_F(EngineTest, WatchdogReportsSoonWhereThatIsAsked) {
  Engine engine{below_, 3600};
  std::atomic<std::uint64_t> word{0};
  testing::internal::CaptureStderr();
  const Watch watch{.call = "MPI_Init", .within = 0.05};
  engine.wait(Completion::when_any({Completion::of(word, 1), Completion::after(1s)}), watch);
  const std::string lines = testing::internal::GetCapturedStderr();
  const auto first = lines.find("s in MPI_Init");
  ASSERT_NE(first, std::string::npos) << lines;
  EXPECT_EQ(lines.find("s in MPI_Init", first + 1), std::string::npos) << lines;
}

TEST_F(EngineTest, AWaitInVainIsEnded) {
  Engine engine{below_, 0};
  const std::atomic<std::uint64_t> never{0};
  int asked = 0;
  const Watch watch{.check =
                        [](const void* count) {
                          if (++*static_cast<int*>(const_cast<void*>(count)) == 2)
                            throw crosslane::base::Error(crosslane::base::ErrorClass::other, "the GPU failed");
                        },
                    .checked = &asked};
  EXPECT_THROW(engine.wait(Completion::of(never, 1), watch), crosslane::base::Error);
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(engine.progress()) << "the engine is free again, and has nothing to do";
}

TEST(Watch, NamesWhatItHasToAskFor) {
  const Watch watch{.call = "MPI_Recv",
                    .sequence = 3,
                    .name = [](const void* text) { return std::string{static_cast<const char*>(text)}; },
                    .context = "halo"};
  EXPECT_EQ(describe(watch), "MPI_Recv on halo, call 3");
}

TEST(Watch, SaysNoMoreWhereThereIsNoMore) {
  const Watch watch{.call = "MPI_Recv", .details = [](const void*) { return std::string{}; }};
  EXPECT_EQ(describe(watch), "MPI_Recv");
}

TEST_F(EngineTest, WatchdogIsSilentWhileSomethingMoves) {
  Engine engine{below_, 1};  // longer than a loaded machine keeps a thread waiting
  std::atomic<std::uint64_t> ticks{0};
  std::atomic<bool> stop{false};
  std::thread mover{[&] {
    while (!stop) {
      ticks.fetch_add(1, std::memory_order_release);
      std::this_thread::yield();
    }
  }};
  const auto body = [](const std::atomic<std::uint64_t>& word) -> Task<> {
    const Completion end = Completion::after(2s);
    while (!end.done()) co_await Completion::of(word, word.load() + 1);
  };
  testing::internal::CaptureStderr();
  engine.wait(engine.spawn(body(ticks)), {.call = "test"});
  stop = true;
  mover.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(EngineTest, WatchdogIsSilentWhileEventsAreSeen) {
  Engine engine{below_, 1};
  std::uint64_t events = 0;
  const Completion end = Completion::after(2s);
  testing::internal::CaptureStderr();
  engine.until([&] { return ++events, end.done(); }, {.call = "test", .events = &events});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
