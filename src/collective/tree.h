// The trees along which host-driven collectives gather and spread, as one member sees them: who gives to whom, and into which slot
// of the taker's shared buffer. A member that takes has one slot for each of its children, and one for the result. COLL 4.1.1 (a star)
// and 4.1.2 (a binomial tree). They must not know what is gathered.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace crosslane::collective {

struct Child {
  int member;
  int level;  ///< From 1 for those that give first.
  std::size_t slot;
};

struct Tree {
  bool inside = false;          ///< This member is in the group at all.
  int parent = -1;              ///< -1 at the root.
  int level = 0;                ///< At which this member gives to its parent, as the parent knows it.
  std::size_t slot = 0;         ///< Which it fills there.
  std::size_t result_slot = 0;  ///< In every taker's buffer.
  std::vector<Child> children;  ///< By level; those of one level in the group's order.
  std::size_t before = 0;       ///< Children that stand before this member in the group.
  bool own_first = false;       ///< What this member has comes before what its children give, unless order matters.

  [[nodiscard]] bool alone() const noexcept { return parent < 0 && children.empty(); }
};

/// Slots of a buffer in a group of so many.
using SlotsOf = std::size_t (*)(std::size_t members) noexcept;
/// The tree over `group` (members of the team, ascending, `root` among them), as `me` sees it.
using TreeOf = Tree (*)(std::span<const int> group, int root, int me);

/// All give to the root at once.
[[nodiscard]] Tree star(std::span<const int> group, int root, int me);
[[nodiscard]] std::size_t star_slots(std::size_t members) noexcept;

/// In level l, those whose distance from the root is an odd multiple of 2^(l-1) give to the one that is so much nearer.
[[nodiscard]] Tree binomial(std::span<const int> group, int root, int me);
[[nodiscard]] std::size_t binomial_slots(std::size_t members) noexcept;

/// A kind of tree: what one level of a hierarchy is made with.
struct TreeKind {
  TreeOf tree;
  SlotsOf slots;
};
inline constexpr TreeKind stars{star, star_slots};
inline constexpr TreeKind binomials{binomial, binomial_slots};

}  // namespace crosslane::collective
