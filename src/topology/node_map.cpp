// Numbering nodes from what ranks say about their machines.
#include "topology/node_map.h"

#include <algorithm>
#include <map>
#include <utility>

namespace crosslane::topology {

NodeMap::NodeMap(std::span<const HostIdentity> hosts, int node_size) {
  std::map<std::pair<HostIdentity, std::size_t>, int> groups;
  std::vector<int> group_of_rank;
  group_of_rank.reserve(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t slice = node_size > 0 ? rank / static_cast<std::size_t>(node_size) : 0;
    const auto [group, fresh] = groups.try_emplace({hosts[rank], slice}, static_cast<int>(groups.size()));
    group_of_rank.push_back(group->second);
  }
  number(group_of_rank);
}

// Groups are numbered by first appearance, which is by lowest rank.
void NodeMap::number(std::span<const int> group_of_rank) {
  std::map<int, int> node_of_group;
  for (std::size_t rank = 0; rank < group_of_rank.size(); ++rank) {
    const auto [entry, fresh] = node_of_group.try_emplace(group_of_rank[rank], static_cast<int>(members_.size()));
    if (fresh) members_.emplace_back();
    auto& node = members_[static_cast<std::size_t>(entry->second)];
    node_of_.push_back(entry->second);
    local_rank_.push_back(static_cast<int>(node.size()));
    node.push_back(static_cast<int>(rank));
  }
}

bool NodeMap::even() const noexcept {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& node) { return node.size() == members_.front().size(); });
}

NodeMap NodeMap::dissolve(const std::vector<bool>& node) const {
  std::vector<int> group_of_rank;
  for (std::size_t rank = 0; rank < node_of_.size(); ++rank) {
    const int group = node_of_[rank];
    const bool lone = node[static_cast<std::size_t>(group)];
    group_of_rank.push_back(lone ? nodes() + static_cast<int>(rank) : group);
  }
  NodeMap map;
  map.number(group_of_rank);
  return map;
}

}  // namespace crosslane::topology
