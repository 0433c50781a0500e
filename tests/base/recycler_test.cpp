// Memory that is kept for the next objects: nobody else has it, and it is taken again.
#include "base/recycler.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace crosslane::base {
namespace {

// Nobody's block is anybody else's, whichever thread takes and gives it.
TEST(RecyclerTest, BlocksAreDisjointAndPassBetweenThreads) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  struct Block {
    unsigned char* memory;
    std::size_t bytes;
    unsigned char mark;
  };
  std::mutex mutex;
  std::vector<Block> common;
  const auto work = [&](unsigned number) {
    std::mt19937 random(seed + number);
    std::vector<Block> mine;
    const auto give = [&](const Block& block) {
      for (std::size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.memory[i], block.mark);
      give_block(block.memory, block.bytes);
    };
    for (int round = 0; round < 20000; ++round) {
      const std::size_t bytes = random() % 4 == 0 ? random() % (2 * recycled_bytes) : 1 + random() % 300;
      const Block made{static_cast<unsigned char*>(take_block(bytes)), bytes, static_cast<unsigned char>(random())};
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(made.memory) % __STDCPP_DEFAULT_NEW_ALIGNMENT__, 0U);
      std::memset(made.memory, made.mark, bytes);
      mine.push_back(made);
      if (random() % 8 == 0) {
        const std::lock_guard lock(mutex);
        common.push_back(mine.back());
        mine.pop_back();
        std::swap(common.back(), common[random() % common.size()]);
      }
      while (mine.size() > random() % 700) {
        give(mine.back());
        mine.pop_back();
      }
      if (random() % 8 == 0) {
        const std::lock_guard lock(mutex);
        if (common.empty()) continue;
        mine.push_back(common.back());
        common.pop_back();
      }
    }
    for (const Block& block : mine) give(block);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  for (const Block& block : common) {
    for (std::size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.memory[i], block.mark);
    give_block(block.memory, block.bytes);
  }
}

TEST(RecyclerTest, ServesObjectsAndContainers) {
  struct Base : Recycled {
    Base() = default;
    Base(const Base&) = delete;
    Base& operator=(const Base&) = delete;
    virtual ~Base() = default;
  };
  struct Derived final : Base {
    explicit Derived(int& gone) : gone_(gone) {}
    ~Derived() override { ++gone_; }
    int& gone_;
    std::array<char, 500> bytes{};
  };
  int gone = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::unique_ptr<Base> one = std::make_unique<Derived>(gone);
    const auto shared = std::allocate_shared<Derived>(RecyclingAllocator<Derived>{}, gone);
  }
  EXPECT_EQ(gone, 2000);
  std::unordered_map<int, int, std::hash<int>, std::equal_to<>, RecyclingAllocator<std::pair<const int, int>>> map;
  std::vector<int, RecyclingAllocator<int>> numbers;
  for (int i = 0; i < 5000; ++i) {
    map[i % 700] = i;
    if (i % 3 == 0) map.erase(i % 500);
    numbers.push_back(i);
  }
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
  EXPECT_THROW(numbers.reserve(static_cast<std::size_t>(-1)), std::length_error);
}

// What was given is taken again: otherwise this would be a slower way to the C++ library. Not under AddressSanitizer.
TEST(RecyclerTest, KeepsBlocks) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "objects that are gone stay gone under AddressSanitizer";
#endif
  std::set<void*> given;
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(take_block(1000));
  for (void* const block : blocks) {
    given.insert(block);
    give_block(block, 1000);
  }
  std::size_t again = 0;
  for (void*& block : blocks) {
    block = take_block(990);
    again += given.count(block);
  }
  EXPECT_EQ(again, given.size());
  for (void* const block : blocks) give_block(block, 990);
}

}  // namespace
}  // namespace crosslane::base
