// Who writes what where, of collectives that only move blocks: straight from a member's buffer into the others'. It must not know
// what carries the blocks.
#pragma once

#include "collective/plan.h"
#include "kernel/move.h"

#include <vector>

namespace crosslane::collective {

/// What this member writes into the buffer of the `step`th member after it, or into its own (0): no bytes, or no other place, where
/// there is nothing to do. Of an exposed call of an all-gather, all-to-all, gather, scatter, or a v form of these.
[[nodiscard]] kernel::Move push_of(const Call& call, int step);

/// All that there is to do, the own buffer last. Each member begins with the one after it, so that no receiver has all at once.
[[nodiscard]] std::vector<kernel::Move> pushes_of(const Call& call);

}  // namespace crosslane::collective
