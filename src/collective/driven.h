// What a host-driven algorithm is given: it runs as a task inside the blocking call, waits for flags in the node's directory, and has
// the GPU do only what never waits for another rank's kernel. It must not know how it was chosen.
#pragma once

#include "collective/plan.h"
#include "engine/engine.h"
#include "team/team.h"

#include <atomic>

namespace crosslane::collective {

/// Refers to what outlives the task.
struct DrivenCall {
  const Call& call;
  team::Team& team;  ///< Of which the call has a view.
  /// Whom the task waits for just now, for the watchdog's line; -1: nobody.
  std::atomic<int>& waits_for;
  double limit_s;      ///< Of each wait.
  bool deterministic;  ///< Reductions combine in rank order.
};

}  // namespace crosslane::collective
