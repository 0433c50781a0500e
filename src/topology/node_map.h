// NodeMap: which ranks of the world share a node. Facts, equal on all ranks; how they were found out is team/'s matter.
// A node here is a set of ranks that share memory: a machine, a part of one (CROSSLANE_NODE_SIZE), or one lone rank.
#pragma once

#include "topology/host.h"

#include <span>
#include <vector>

namespace crosslane::topology {

class NodeMap {
 public:
  NodeMap() = default;

  /// From each rank's machine. `node_size` above 0 cuts machines into pretended nodes of that many consecutive ranks of
  /// the world; ranks of different machines never share a node. Nodes are numbered by their lowest rank.
  NodeMap(std::span<const HostIdentity> hosts, int node_size);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(node_of_.size()); }
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
  /// The rank's position among the ranks of its node.
  [[nodiscard]] int local_rank(int rank) const { return local_rank_.at(static_cast<std::size_t>(rank)); }
  /// A node's ranks in the world, ascending: the position is the local rank.
  [[nodiscard]] std::span<const int> members(int node) const { return members_.at(static_cast<std::size_t>(node)); }
  [[nodiscard]] int node_size(int node) const { return static_cast<int>(members(node).size()); }
  /// The lowest rank of a node.
  [[nodiscard]] int leader(int node) const { return members(node).front(); }
  [[nodiscard]] bool same_node(int one, int other) const { return node_of(one) == node_of(other); }
  /// True if all nodes have as many ranks.
  [[nodiscard]] bool even() const noexcept;

  /// The same map with those nodes dissolved into nodes of one rank each: their ranks could not share memory.
  [[nodiscard]] NodeMap dissolve(const std::vector<bool>& node) const;

 private:
  void number(std::span<const int> group_of_rank);

  std::vector<int> node_of_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> members_;
};

}  // namespace crosslane::topology
