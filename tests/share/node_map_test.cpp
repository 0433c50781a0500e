// Who shares a node: machines in any order of ranks, pretended nodes, dissolved nodes.
#include "topology/node_map.h"
#include "topology/host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

namespace {

using namespace crosslane::topology;

std::vector<HostIdentity> hosts(std::initializer_list<std::uint64_t> numbers) {
  std::vector<HostIdentity> all;
  for (const auto number : numbers) all.push_back({number, 0});
  return all;
}

std::vector<int> vector_of(std::span<const int> span) { return {span.begin(), span.end()}; }

TEST(NodeMap, RoundRobinPlacement) {
  const NodeMap map{hosts({7, 3, 7, 3, 7}), 0};
  EXPECT_EQ(map.nodes(), 2);
  EXPECT_EQ(vector_of(map.members(0)), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(vector_of(map.members(1)), (std::vector<int>{1, 3}));
  EXPECT_EQ(map.local_rank(4), 2);
  EXPECT_EQ(map.leader(1), 1);
  EXPECT_FALSE(map.even());
}

TEST(NodeMap, PretendedNodesNeverCrossMachines) {
  const NodeMap map{hosts({1, 1, 1, 2, 2, 2}), 2};
  EXPECT_EQ(map.nodes(), 4);  // 0 1 | 2 || 3 | 4 5
  EXPECT_TRUE(map.same_node(0, 1));
  EXPECT_FALSE(map.same_node(2, 3));
  EXPECT_TRUE(map.same_node(4, 5));
}

TEST(NodeMap, DissolvedNodesAreRanksAlone) {
  const NodeMap map = NodeMap{hosts({1, 2, 1, 2}), 0}.dissolve({false, true});
  EXPECT_EQ(map.nodes(), 3);
  EXPECT_TRUE(map.same_node(0, 2));
  EXPECT_FALSE(map.same_node(1, 3));
  EXPECT_EQ(map.node_of(1), 1);
  EXPECT_EQ(map.node_of(3), 2);
}

TEST(NodeMap, RandomMapsAreConsistent) {
  const char* const given = std::getenv("CROSSLANE_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "CROSSLANE_TEST_SEED=" << seed << '\n';
  std::mt19937_64 random{seed};
  for (int round = 0; round < 200; ++round) {
    std::vector<HostIdentity> all(1 + random() % 40);
    for (auto& host : all) host = {random() % 5, 0};
    const int size = static_cast<int>(random() % 6);
    const NodeMap map{all, size};
    int counted = 0;
    for (int node = 0; node < map.nodes(); ++node) {
      const auto members = map.members(node);
      ASSERT_EQ(map.leader(node), *std::min_element(members.begin(), members.end()));
      if (node > 0) {
        ASSERT_LT(map.leader(node - 1), map.leader(node));
      }
      for (std::size_t local = 0; local < members.size(); ++local) {
        ASSERT_EQ(map.node_of(members[local]), node);
        ASSERT_EQ(map.local_rank(members[local]), static_cast<int>(local));
        ++counted;
      }
    }
    ASSERT_EQ(counted, map.ranks());
    for (int one = 0; one < map.ranks(); ++one) {
      for (int other = 0; other < map.ranks(); ++other) {
        const bool together = all[static_cast<std::size_t>(one)] == all[static_cast<std::size_t>(other)] &&
                              (size == 0 || one / size == other / size);
        ASSERT_EQ(map.same_node(one, other), together);
      }
    }
  }
}

TEST(HostIdentity, TellsNamesApart) {
  EXPECT_EQ(host_identity("one"), host_identity("one"));
  EXPECT_NE(host_identity("one"), host_identity("two"));
}

}  // namespace
