// The tree's canonical form: equal layouts written differently become the same small tree.
#include "base/error.h"
#include "layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace crosslane::layout {
namespace {

using Kind = Node::Kind;

TEST(Node, AdjacentRepetitionsAreOneBlock) {
  const auto node = repeat(repeat(block(4, 8), 10, 8), 3, 80);
  EXPECT_EQ(node->kind, Kind::block);
  EXPECT_EQ(node->size, 240U);
  EXPECT_EQ(node->low, 4);
}

TEST(Node, NestedLoopsOfOneStrideFold) {
  const auto node = repeat(repeat(block(0, 4), 10, 16), 5, 160);
  ASSERT_EQ(node->kind, Kind::loop);
  EXPECT_EQ(node->count, 50U);
  EXPECT_EQ(node->child->kind, Kind::block);
}

TEST(Node, RegularListsBecomeLoops) {
  std::vector<Placed> placed;
  for (int i = 0; i < 1000; ++i) placed.push_back({i * 24, block(0, 8)});
  const auto node = join(placed);
  ASSERT_EQ(node->kind, Kind::loop);
  EXPECT_EQ(node->count, 1000U);
  EXPECT_EQ(node->stride, 24);
}

TEST(Node, EqualPartsAtEqualDistancesBecomeLoops) {
  const auto inner = repeat(block(0, 8), 100, 16);
  std::vector<Placed> placed;
  for (int i = 0; i < 10; ++i) placed.push_back({-i * 5000, inner});
  const auto node = join(placed);
  ASSERT_EQ(node->kind, Kind::loop);
  EXPECT_EQ(node->stride, -5000);
  EXPECT_EQ(node->low, -45000);
  EXPECT_EQ(node->high, 99 * 16 + 8);
}

TEST(Node, AdjacentRunsOfAListAreJoined) {
  const Placed placed[] = {{0, block(0, 4)}, {4, block(0, 4)}, {20, block(0, 1)}, {8, block(0, 4)}};
  const auto node = join(placed);
  ASSERT_EQ(node->kind, Kind::runs);
  EXPECT_EQ(node->run_count, 3U);  // 8 is adjacent in memory, but not in order
}

// Blocks without nodes of their own, and what is known of their list: against a loop over all of them.
TEST(Node, PiecesBecomeWhatBlocksDo) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 engine(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 500; ++i) {
    const std::int64_t unit = between(0, 2) == 0 ? between(1, 24) : std::int64_t{1} << between(0, 5);
    std::vector<Piece> pieces;
    std::vector<Placed> placed;
    std::int64_t at = unit * between(-500, 500);
    for (std::int64_t k = between(0, i % 20 == 0 ? 2000 : 12); k > 0; --k) {
      const auto length = static_cast<std::size_t>(unit * between(0, 6));
      pieces.push_back({at, length});
      placed.push_back({at, block(0, length)});
      at += static_cast<std::int64_t>(length) + unit * (between(0, 3) == 0 ? 0 : between(-40, 40));
    }
    const auto node = join(pieces), same = join(placed);
    ASSERT_TRUE(equal(*node, *same)) << i;
    ASSERT_EQ(hash(*node), hash(*same)) << i;
    std::uint64_t divisor = 0, bits = 0;
    std::size_t size = 0;
    std::int64_t low = std::numeric_limits<std::int64_t>::max();
    Layout(node, 0, 0).for_each_run(1, 0, node->size, [&](std::int64_t offset, std::size_t) {
      low = std::min(low, offset);
    });
    Layout(node, 0, 0).for_each_run(1, 0, node->size, [&](std::int64_t offset, std::size_t length) {
      divisor = std::gcd(divisor, length);
      bits |= static_cast<std::uint64_t>(offset - low);
      size += length;
    });
    ASSERT_EQ(size, node->size);
    if (node->kind != Kind::runs) continue;
    const RunFacts facts = run_facts(*node), moved = run_facts(*shift(node, unit * 3 + 1));
    bits |= divisor;
    EXPECT_EQ(facts.divisor, divisor) << i;
    EXPECT_EQ(facts.alignment, bits & (0 - bits)) << i;
    EXPECT_EQ(moved.divisor, facts.divisor) << i;
    EXPECT_EQ(moved.alignment, facts.alignment) << i;
  }
}

// A long list's hash looks at some of it; equal() at all.
TEST(Node, LongListsThatDifferInOneRunAreNotEqual) {
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < 100'000; ++i) pieces.push_back({i * i % 1'000'003 * 8, 4});
  const auto node = join(pieces);
  EXPECT_EQ(hash(*node), hash(*join(pieces)));
  EXPECT_TRUE(equal(*node, *join(pieces)));
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{54'321}, pieces.size() - 1}) {
    auto other = pieces;
    other[i].offset += 1;
    EXPECT_FALSE(equal(*node, *join(other))) << i;
  }
}

TEST(Node, LargeListsAreSharedNotCopied) {
  std::vector<Placed> placed;
  for (long i = 0; i < 100'000; ++i) placed.push_back({i * i % 1'000'003 * 2, block(0, 1)});
  const auto list = join(placed);
  ASSERT_EQ(list->kind, Kind::runs);
  const Placed many[] = {{0, list}, {1, list}, {10'000'000, list}};
  const auto node = join(many);
  ASSERT_EQ(node->kind, Kind::sequence);
  for (const Part& part : node->parts) EXPECT_EQ(part.node, list);
}

// Three times itself at uneven distances, 24 times over: 3^24 runs in a tree of a few thousand nodes.
TEST(Node, DeepTreesShareTheirParts) {
  constexpr int levels = 24;
  const auto displacement = [](int level, std::size_t member) {
    const std::int64_t at[] = {(std::int64_t{5} << (level + level / 2)) + level, 0,
                               (std::int64_t{1} << (level + level / 2)) + level};
    return at[member];
  };
  auto node = block(0, 1);
  for (int level = 0; level < levels; ++level) {
    const Placed thrice[] = {
        {displacement(level, 0), node}, {displacement(level, 1), node}, {displacement(level, 2), node}};
    node = join(thrice);
  }
  ASSERT_EQ(node->size, 282429536481U);
  const Layout layout(node, 0, 1);
  std::mt19937_64 engine(17);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t byte = engine() % node->size;
    std::int64_t expected = 0;
    // The outermost level is the highest digit; parts[0] comes first in packing order.
    std::size_t digits = byte;
    for (int level = 0; level < levels; ++level, digits /= 3) expected += displacement(level, digits % 3);
    layout.for_each_run(1, byte, byte + 1, [&](std::int64_t offset, std::size_t length) {
      EXPECT_EQ(offset, expected);
      EXPECT_EQ(length, 1U);
    });
  }
}

TEST(Node, NothingIsEmpty) {
  EXPECT_EQ(repeat(block(3, 4), 0, 8)->kind, Kind::empty);
  EXPECT_EQ(repeat(empty(), 7, 8)->kind, Kind::empty);
  const Placed placed[] = {{5, empty()}, {9, block(0, 0)}};
  EXPECT_EQ(join(placed)->kind, Kind::empty);
  EXPECT_EQ(shift(empty(), 8)->kind, Kind::empty);
}

TEST(Node, OverflowIsAnError) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(repeat(block(0, 8), 1ULL << 62, 16), base::Error);
  EXPECT_THROW(shift(block(0, 8), most), base::Error);
  EXPECT_THROW(block(most - 3, 8), base::Error);
  EXPECT_THROW(repeat(block(0, 1ULL << 40), 1ULL << 30, 1LL << 40), base::Error);
  EXPECT_THROW(static_cast<void>(Layout(block(0, 8), 0, 8).packed_size(most / 2)), base::Error);
}

TEST(Layout, DenseElementsNeedNoWalk) {
  const Layout layout(block(16, 8), 0, 8);
  int calls = 0;
  layout.for_each_run(std::int64_t{1} << 50, 5, std::size_t{1} << 52, [&](std::int64_t offset, std::size_t length) {
    ++calls;
    EXPECT_EQ(offset, 21);
    EXPECT_EQ(length, (std::size_t{1} << 52) - 5);
  });
  EXPECT_EQ(calls, 1);
}

TEST(Layout, ElementsFoldIntoTheOutermostLoop) {
  const Layout layout(repeat(block(0, 4), 10, 16), 0, 160);
  const auto shape = layout.as_strided(7);
  ASSERT_TRUE(shape);
  ASSERT_EQ(shape->dimensions, 1U);
  EXPECT_EQ(shape->dimension[0].count, 70U);
  const Layout apart(repeat(block(0, 4), 10, 16), 0, 200);
  const auto strided = apart.as_strided(7);
  ASSERT_TRUE(strided);
  EXPECT_EQ(strided->dimensions, 2U);
}

TEST(Layout, StridesMayBeNegative) {
  const auto shape = Layout(repeat(block(0, 4), 10, -16), 0, 4).as_strided(1);
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->dimension[0].stride, -16);
}

TEST(Layout, MoreDimensionsThanFitAreRefused) {
  auto node = block(0, 1);
  std::int64_t stride = 2;
  for (std::size_t i = 0; i < Strided::limit; ++i) {
    node = repeat(node, 2, stride);
    stride = stride * 2 + 1;
  }
  EXPECT_TRUE(Layout(node, 0, 1000).as_strided(1));
  EXPECT_FALSE(Layout(node, 0, 1000).as_strided(2));
  EXPECT_FALSE(Layout(repeat(node, 2, stride), 0, 1000).as_strided(1));
}

}  // namespace
}  // namespace crosslane::layout
