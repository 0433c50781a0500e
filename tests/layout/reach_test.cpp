// Which bytes of elements are asked about, by memory of three allocations of which any may be a GPU's; and that an outline leads to the same regions as
// a walk of all runs.
#include "layout/reach.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
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
    const auto* const at = reinterpret_cast<const void*>(base);
    const std::size_t before = questions;
    const bool walked = reaches(on_gpu, at, layout, nullptr, count);
    questions = before;
    const Outline outline(layout);
    EXPECT_EQ(reaches(on_gpu, at, layout, &outline, count), walked);
    return walked;
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

// All regions that a buffer's runs end in, by a walk of them and by the outline of one element.
TEST(Reach, OutlinesLeadToTheRegionsOfAllRuns) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto upto = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    std::vector<Placed> placed;
    // Here and there within a few regions, before the buffer's address too; now and then where one region ends and the next begins.
    for (std::int64_t run = 0, runs = 1 + upto(200); run < runs; ++run) {
      std::int64_t offset = upto(5 * apart) - 2 * apart;
      if (upto(9) == 0) offset = offset / std::int64_t{gpu::region_bytes} * std::int64_t{gpu::region_bytes} - upto(1);
      placed.push_back({offset, block(0, static_cast<std::size_t>(1 + upto(upto(9) == 0 ? apart : 1000)))});
    }
    const std::int64_t count = 1 + upto(3);
    const Layout layout = of(placed, upto(2 * apart) - apart / 2);
    const Outline outline(layout);
    EXPECT_LE(outline.stretches().size(),
              static_cast<std::size_t>(layout.true_extent()) / gpu::region_bytes + std::size_t{2});
    const auto* const at = reinterpret_cast<const void*>(Memory::base + static_cast<std::uintptr_t>(upto(apart)));
    std::set<std::uintptr_t> walked, outlined;
    const auto into = [](std::set<std::uintptr_t>& regions) {
      return [&regions](const std::byte* byte) { return regions.insert(gpu::region_of(byte)), false; };
    };
    EXPECT_FALSE(any_run(into(walked), at, layout, count));
    EXPECT_FALSE(any_run(into(outlined), at, layout, outline, count));
    EXPECT_EQ(outlined, walked);
  }
}

TEST(Reach, OneBlockIsNotAskedAbout) {
  auto memory = gpu_at(0);
  EXPECT_FALSE(memory.reached(Layout(block(0, 8), 0, 8), 1000));
  EXPECT_EQ(memory.questions, 0U);
}

}  // namespace
}  // namespace crosslane::layout
