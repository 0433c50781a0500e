// One host-driven call on one rank: parts of the data go up along trees, are combined on the takers' GPUs, and come down again
// (COLL 4.1.1, 4.1.2, 4.2.1). All a rank's GPU work is on one stream; the directory's flags tell that a copy was enqueued and
// the event after it recorded, and who needs the copy has its own stream wait for that event. So hosts wait for hosts, GPUs for
// work that is enqueued already, and no kernel for anything.
//
// Slots are double-buffered by a part's parity. Who may write part k into one, and why nobody needs its part k - 2 any more:
//
//   slot of a child   by the child, once its parent's `complete` is at k - 2: the parent has enqueued all that reads the slot before,
//                     and the child's stream waits for the event. In an all-reduce the child has read that result: the same.
//   result slot       by its owner, once all its children's `given` are at k (all-reduce: the copy of part k comes after the child's
//                     read of result k - 2 on its stream) or at k - 2 (broadcast: `given` tells there that the child has read)
//
// Between calls nothing has to be said: every member of the next direct call has come to its end here (team::Team::arrive).
#pragma once

#include "base/clock.h"
#include "collective/shape.h"
#include "collective/tree.h"
#include "engine/completion.h"
#include "share/board.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::collective {

/// What a relay works with: the members' entries and windows, and one stream of this rank's GPU, on which all is enqueued in order.
class Site {
 public:
  Site() = default;
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;
  virtual ~Site() = default;

  /// The number of this call among the team's, from 1.
  [[nodiscard]] virtual std::uint64_t call() const = 0;
  [[nodiscard]] virtual share::Entry& own_entry() = 0;
  [[nodiscard]] virtual const share::Entry& entry(int member) const = 0;
  /// Where slots of that parity lie in a member's window, as mapped here.
  [[nodiscard]] virtual std::byte* window(int member, std::size_t parity) const = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// inout = in op inout.
  virtual void combine(std::byte* inout, const std::byte* in, std::size_t bytes) = 0;
  virtual void record(std::size_t parity) = 0;
  /// What follows here comes after what `member` had enqueued when it last recorded that event.
  virtual void follow(int member, std::size_t parity) = 0;
  /// Marks what was enqueued so far, and waits for such a mark: then that is done.
  virtual std::uint64_t mark() = 0;
  virtual engine::Task<> reach(std::uint64_t mark) = 0;

  /// The task is about to wait for that member, or what else there is.
  virtual void waits_for(int member) noexcept = 0;
  /// Asked now and then while it waits, since `begin`: throws where that is in vain.
  virtual void look(int member, base::Time begin) = 0;
};

/// What a task waits for if it is no member.
inline constexpr int the_gpu = -1, other_nodes = -2;

/// How long a task waits until it looks whether that is in vain.
inline constexpr std::chrono::seconds look_every{1};

/// One level of the hierarchy, the lowest first. `slots`: of the largest group of that level, equal on all members.
struct RelayLevel {
  Tree tree;
  std::size_t slots;
};

/// The level above the team's, for who is at the top of all of its trees: other nodes, whose parts are begun in their order, each once
/// the one before the last has ended.
class Above {
 public:
  Above() = default;
  Above(const Above&) = delete;
  Above& operator=(const Above&) = delete;
  virtual ~Above() = default;

  /// `data`: what this node has of the part, where it gives something, to be read in the stream's order.
  virtual void begin(std::size_t part, const std::byte* data) = 0;
  /// The part's result in memory of the host, for what is enqueued until the next but one begins; null where this node gets none.
  virtual engine::Task<const std::byte*> end(std::size_t part) = 0;
};

/// One rank's side of a call.
struct Relayed {
  Shape shape;
  int me;
  bool root;  ///< Of a broadcast.
  const std::byte* send;
  std::byte* receive;
  std::size_t slot_bytes;  ///< Of each slot, and so of a part: whole elements.
  bool in_order;           ///< Reductions combine in rank order (one level of stars alone does that).
  Above* above = nullptr;  ///< Only where there is one, and this member is at the top.
};

/// An all-reduce, reduce or broadcast along the levels' trees; where a member is the root of one, it is in the next. At most
/// share::Entry::levels. Throws what the site throws.
engine::Task<> relay(Site& site, Relayed call, std::vector<RelayLevel> levels);

}  // namespace crosslane::collective
