// What a host-driven algorithm is given: it runs as a task, inside a blocking call or behind a nonblocking one, waits for flags in the node's directory, and has
// the GPU do only what never waits for another rank's kernel. It must not know how it was chosen.
#pragma once

#include "collective/plan.h"
#include "engine/engine.h"
#include "team/messenger.h"
#include "team/span.h"
#include "team/team.h"

#include <atomic>

namespace crosslane::collective {

/// What a call has besides its node's team, where the communicator is on several nodes. Refers to what outlives the task.
struct Beyond {
  const team::Span& span;
  const team::Messenger& messenger;  ///< On the world's private communicator.
  engine::Engine& engine;
  int root;             ///< The rank in the communicator, where the call has one; else -1.
  bool failed = false;  ///< This rank cannot take part: it only tells the others.

  /// The rank that takes part for its node: the root, or, where it is on another node or there is none, the last.
  [[nodiscard]] int leader_of(int node) const {
    return root >= 0 && span.node_of(root) == node ? root : span.ranks_of(node).back();
  }
};

/// Refers to what outlives the task.
struct DrivenCall {
  const Call& call;
  team::Team& team;  ///< Of which the call has a view.
  /// Whom the task waits for just now, for the watchdog's line: a member, or what else there is (relay.h).
  std::atomic<int>& waits_for;
  double limit_s;      ///< Of each wait.
  bool deterministic;  ///< Reductions combine in rank order.
  bool lifts;  ///< What this rank passes is on its way to its window: first, all that is enqueued has to be done.
  const Beyond* beyond = nullptr;  ///< Then the call's root is this node's leader, by member.
};

}  // namespace crosslane::collective
