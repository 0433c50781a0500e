// How memory is cut for blocks and their threads: every byte once, and between lines where there are many. What a block of one thread, an
// emulated one, cannot show.
#include "kernel/move.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>

namespace crosslane::kernel {
namespace {

struct Thread {
  std::uint64_t rank_, size_;
  [[nodiscard]] std::uint64_t rank() const { return rank_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
};

template <class Word>
void expect_whole_lines(std::uint64_t address, std::uint64_t size) {
  std::set<std::uint64_t> first;
  for (std::uint64_t rank = 0; rank < size; ++rank) first.insert(first_word<Word>(Thread{rank, size}, address));
  // With steps of the block's size, these are all words, each once.
  EXPECT_EQ(first.size(), size);
  EXPECT_EQ(*first.rbegin(), size - 1);
  if (size * sizeof(Word) < 2 * line_bytes) return;
  EXPECT_EQ((address + first_word<Word>(Thread{0, size}, address) * sizeof(Word)) % line_bytes, 0U)
      << "words of " << sizeof(Word) << " bytes from " << address << " on, " << size << " threads";
}

TEST(Lanes, HaveEachWordOnceAndBeginWithLines) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::uint64_t size : {1, 2, 8, 32, 96, 256, 512}) {
    for (int round = 0; round < 50; ++round) {
      const std::uint64_t word = 16 * std::uniform_int_distribution<std::uint64_t>(1, 1000)(random);
      expect_whole_lines<Word16>(word, size);
      expect_whole_lines<std::uint64_t>(word / 2, size);
      expect_whole_lines<std::uint32_t>(word / 4, size);
      expect_whole_lines<std::uint8_t>(word / 16, size);
    }
  }
}

TEST(Slices, CoverAllAndAreCutBetweenLinesWhereTheyAreLong) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t blocks = std::uniform_int_distribution<std::uint64_t>(1, 160)(random);
    const unsigned bits = std::uniform_int_distribution<unsigned>(0, 33)(random);
    const std::uint64_t bytes = std::uniform_int_distribution<std::uint64_t>(0, std::uint64_t{1} << bits)(random);
    const std::uint64_t share = (bytes + blocks - 1) / blocks;
    std::uint64_t end = 0;
    for (std::uint64_t b = 0; b < blocks; ++b) {
      const Slice slice = slice_of(bytes, b, blocks);
      ASSERT_EQ(slice.begin, end) << "slice " << b << " of " << blocks << ", " << bytes << " bytes";
      end = slice.end;
      EXPECT_LE(slice.end - slice.begin, slice_of(bytes, 0, blocks).end);
      if (slice.begin == bytes) continue;
      EXPECT_EQ(slice.begin % 16, 0U);
      if (share >= 64 * line_bytes) {
        EXPECT_EQ(slice.begin % line_bytes, 0U);
      }
    }
    ASSERT_EQ(end, bytes);
    // No block has much more than its share.
    EXPECT_LE(slice_of(bytes, 0, blocks).end, share + (share < 1024 ? 16 : share / 16));
  }
}

}  // namespace
}  // namespace crosslane::kernel
