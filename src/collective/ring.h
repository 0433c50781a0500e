// Large collectives in one kernel along a ring of the members (kernel/ring.h): each writes to the next one alone, which links carry
// faster than writes to all. Of ranks with a GPU each.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::ring {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
/// All-reduce, reduce, reduce-scatter, all-gather, broadcast.
[[nodiscard]] std::unique_ptr<Plan> prepare(const Call& call);

}  // namespace crosslane::collective::ring
