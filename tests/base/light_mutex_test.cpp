// LightMutex: one at a time, whoever waits for how long; and with the standard library's locks.
#include "base/light_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace crosslane::base {
namespace {

// What it guards is a plain variable, which the thread sanitizer watches, too; some hold it for so long that others stop spinning.
TEST(LightMutexTest, LetsOneInAtATime) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  LightMutex mutex;
  std::uint64_t counted = 0;
  int inside = 0;
  std::atomic<std::uint64_t> entered{0};
  const auto work = [&](unsigned number) {
    std::mt19937 random(seed + number);
    for (int round = 0; round < 5000; ++round) {
      std::unique_lock lock(mutex, std::defer_lock);
      if (random() % 4 != 0)
        lock.lock();
      else if (!lock.try_lock())
        continue;
      EXPECT_EQ(++inside, 1);
      ++counted;
      entered.fetch_add(1, std::memory_order_relaxed);
      if (random() % 1024 == 0) std::this_thread::sleep_for(std::chrono::microseconds{200});
      if (random() % 64 == 0) std::this_thread::yield();
      EXPECT_EQ(--inside, 0);
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  threads.clear();
  EXPECT_EQ(counted, entered.load());
  EXPECT_GE(counted, 4U * 5000 / 2);  // who locks gets in
}

TEST(LightMutexTest, IsNotTakenTwice) {
  LightMutex mutex;
  const std::unique_lock first(mutex);
  EXPECT_FALSE(mutex.try_lock());
  std::jthread([&] { EXPECT_FALSE(std::unique_lock(mutex, std::try_to_lock).owns_lock()); }).join();
}

// A holder that goes away for longer than anybody spins.
TEST(LightMutexTest, IsWaitedFor) {
  LightMutex mutex;
  std::unique_lock first(mutex);
  std::atomic<bool> asks{false};
  bool left = false;
  std::jthread second([&] {
    asks = true;
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(left);
  });
  while (!asks) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  left = true;
  first.unlock();
}

}  // namespace
}  // namespace crosslane::base
