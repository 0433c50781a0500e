// Large messages in buffers that every member can map: kernels write to and read from the peers' own buffers, and nothing is
// staged. Shares are dealt so that no link carries more than it must.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::zero_copy {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
/// Every block goes once from its owner's buffer into its taker's: all-gather, all-to-all, gather, scatter.
[[nodiscard]] std::unique_ptr<Plan> prepare_push(const Call& call);
/// Each member but the root reads a share of the root's buffer, and writes it into the buffers of all others.
[[nodiscard]] std::unique_ptr<Plan> prepare_broadcast(const Call& call);
/// Each member combines a share of the elements and writes it to all that want it: all-reduce, reduce, reduce-scatter.
[[nodiscard]] std::unique_ptr<Plan> prepare_two_shot(const Call& call);

}  // namespace crosslane::collective::zero_copy
