// Which bytes of elements are asked about, by memory of three allocations of which any may be a GPU's.
#include "layout/reach.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::layout {
namespace {

constexpr std::int64_t apart = std::int64_t{16} << 20;

// What was asked of memory that is a GPU's between two addresses.
struct Memory {
  std::uintptr_t begin, end;
  std::size_t questions = 0;

  bool reached(const Layout& layout, std::int64_t count) {
    const auto on_gpu = [this](const std::byte* byte) {
      ++questions;
      const auto address = reinterpret_cast<std::uintptr_t>(byte);
      return address >= begin && address < end;
    };
    return reaches(on_gpu, reinterpret_cast<const void*>(base), layout, count);
  }
  static constexpr std::uintptr_t base = std::uintptr_t{1} << 40;
};

Memory gpu_at(std::int64_t offset) {
  const auto begin = Memory::base + static_cast<std::uintptr_t>(offset);
  return {begin, begin + gpu::region_bytes};
}

Layout of(const std::vector<Placed>& placed, std::int64_t extent) { return {join(placed), 0, extent}; }

TEST(Reach, BlocksHereAndThereAreAskedAboutEach) {
  const Layout blocks = of({{0, block(0, 8)}, {apart, block(0, 100)}, {3 * apart, block(0, 8)}}, 4 * apart);
  for (const std::int64_t place : {apart, 3 * apart}) EXPECT_TRUE(gpu_at(place).reached(blocks, 1)) << place;
  EXPECT_FALSE(gpu_at(2 * apart).reached(blocks, 1));
  EXPECT_TRUE(gpu_at(5 * apart).reached(blocks, 2));
  EXPECT_FALSE(gpu_at(6 * apart).reached(blocks, 2));
}

TEST(Reach, ElementsMayLieApartThoughEachIsOneBlock) {
  const Layout one{block(0, 100), 0, apart};
  EXPECT_FALSE(gpu_at(apart).reached(one, 1));
  EXPECT_TRUE(gpu_at(apart).reached(one, 2));
}

TEST(Reach, AnArrayIsAskedAboutOnce) {
  const Layout rows{repeat(block(0, 8), 1000, 8192), 0, apart};
  auto memory = gpu_at(999 * 8192);
  EXPECT_TRUE(memory.reached(rows, 1));
  memory = gpu_at(2 * apart);
  EXPECT_FALSE(memory.reached(rows, 1));
  EXPECT_EQ(memory.questions, 1U);
  const Layout structures = of({{0, block(0, 8)}, {12, block(0, 4)}, {40, block(0, 8)}}, 64);
  memory = gpu_at(2 * apart);
  EXPECT_FALSE(memory.reached(structures, 1'000'000));
  EXPECT_EQ(memory.questions, 1U);
}

TEST(Reach, OneBlockIsNotAskedAbout) {
  auto memory = gpu_at(0);
  EXPECT_FALSE(memory.reached(Layout(block(0, 8), 0, 8), 1000));
  EXPECT_EQ(memory.questions, 0U);
}

}  // namespace
}  // namespace crosslane::layout
