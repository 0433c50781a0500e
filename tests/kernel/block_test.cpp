// Flags under emulation: blocks that wait for each other, bounded and abortable. The functors are this test's own.
#include "kernel/block.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace crosslane::kernel {
namespace {

std::atomic<bool> aborted{false};

gpu::EmulatedLaunch launch_of(unsigned index, unsigned blocks) {
  return {.grid = {blocks, 1, 1},
          .block = {32, 1, 1},
          .block_index = {index, 0, 0},
          .shared_bytes = 0,
          .shared = nullptr,
          .translate = [](std::uint64_t address) { return reinterpret_cast<void*>(address); },
          .aborted = [] { return aborted.load(); }};
}

// Each block adds to a plain word of the next one, which reads it after the flag.
struct Ring {
  std::uint64_t* flags;
  std::uint64_t* words;
  std::uint64_t epochs;

  template <Block B>
  bool operator()(const B& block) const {
    const std::uint64_t before = (block.index() + block.count() - 1) % block.count();
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
      if (block.index() != 0 || epoch != 1) {
        // Block 0 starts each round when the last one has finished the round before.
        const std::uint64_t needed = block.index() == 0 ? epoch - 1 : epoch;
        if (!block.wait(flags + before, needed, {5'000'000'000, nullptr})) return false;
        block.store(words + block.index(), block.load(words + before) + 1);
      }
      block.signal(flags + block.index(), epoch);
    }
    return true;
  }
};

TEST(Flags, CarryWhatWasWrittenBefore) {
  constexpr unsigned blocks = 4;
  std::vector<std::uint64_t> flags(blocks), words(blocks);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (unsigned i = 0; i < blocks; ++i) {
    threads.emplace_back([&, i] {
      const auto launch = launch_of(i, blocks);
      if (!Ring{flags.data(), words.data(), 500}(EmulatedBlock(launch))) ++failed;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(words[blocks - 1], 500U * blocks - 1);
}

TEST(Flags, WaitsEnd) {
  std::uint64_t flag = 7;
  const auto launch = launch_of(0, 1);
  const EmulatedBlock block(launch);
  EXPECT_TRUE(block.wait(&flag, 7, {0, nullptr}));
  EXPECT_TRUE(block.wait(&flag, 3, {0, nullptr}));  // epochs only grow: a later one is good
  EXPECT_FALSE(block.wait(&flag, 8, {1'000'000, nullptr}));

  std::uint32_t abort = 0;
  std::thread watchdog([&] { std::atomic_ref(abort).store(1); });
  EXPECT_FALSE(block.wait(&flag, 8, {60'000'000'000, &abort}));
  watchdog.join();

  std::thread driver([&] { aborted = true; });
  EXPECT_FALSE(block.wait(&flag, 8, {60'000'000'000, nullptr}));
  driver.join();
  aborted = false;
}

TEST(Flags, NothingIsAsOldAsNewEpochs) {
  std::uint64_t flag = 0;
  const auto launch = launch_of(0, 1);
  for (const std::uint64_t epoch : {std::uint64_t{1}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    EXPECT_FALSE(EmulatedBlock(launch).wait(&flag, epoch, {0, nullptr}));
}

}  // namespace
}  // namespace crosslane::kernel
