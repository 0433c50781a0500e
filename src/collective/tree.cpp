// See tree.h.
#include "collective/tree.h"

#include <algorithm>
#include <bit>

namespace crosslane::collective {
namespace {

std::size_t index_of(std::span<const int> group, int member) noexcept {
  return static_cast<std::size_t>(std::ranges::find(group, member) - group.begin());
}

std::size_t levels(std::size_t members) noexcept { return static_cast<std::size_t>(std::bit_width(members - 1)); }

}  // namespace

std::size_t star_slots(std::size_t members) noexcept { return members > 1 ? members : 0; }
std::size_t binomial_slots(std::size_t members) noexcept { return members > 1 ? levels(members) + 1 : 0; }

Tree star(std::span<const int> group, int root, int me) {
  Tree tree;
  const std::size_t own = index_of(group, me);
  if (own == group.size()) return tree;
  tree.inside = true;
  tree.result_slot = group.size() - 1;
  std::size_t slot = 0;
  for (std::size_t index = 0; index < group.size(); ++index) {
    const int member = group[index];
    if (member == root) continue;
    if (me == root) {
      tree.children.push_back({member, 1, slot});
      if (index < own) ++tree.before;
    } else if (member == me) {
      tree.parent = root;
      tree.level = 1;
      tree.slot = slot;
    }
    ++slot;
  }
  return tree;
}

Tree binomial(std::span<const int> group, int root, int me) {
  Tree tree;
  const std::size_t n = group.size();
  const std::size_t own = index_of(group, me);
  if (own == n) return tree;
  const std::size_t first = index_of(group, root);
  const auto member_at = [&](std::size_t distance) { return group[(first + distance) % n]; };
  const std::size_t distance = (own + n - first) % n;
  tree.inside = true;
  tree.own_first = true;
  tree.result_slot = levels(n);
  for (std::size_t level = 0; level < levels(n); ++level) {
    const std::size_t step = std::size_t{1} << level;
    if ((distance & step) != 0) {
      tree.parent = member_at(distance - step);
      tree.level = static_cast<int>(level) + 1;
      tree.slot = level;
      break;
    }
    if (distance + step < n) {
      tree.children.push_back({member_at(distance + step), static_cast<int>(level) + 1, level});
    }
  }
  return tree;
}

}  // namespace crosslane::collective
