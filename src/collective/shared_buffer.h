// COLL 4.1.1, the GPU shared buffer (`gsb`): all members copy into slots of one member's window, which combines them on its GPU in the
// order in which they come, and all read the result there. Its steps 1 to 7 are those of relay.h along a star.
// COLL 4.1.2, the binomial tree (`btb`): in each level half of those that still have data give it to a neighbour, which combines;
// the result comes down the same way. Only members that take something use their windows.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::shared_buffer {

[[nodiscard]] bool supports_gsb(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] engine::Task<> run_gsb(const DrivenCall& call);

[[nodiscard]] bool supports_btb(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] engine::Task<> run_btb(const DrivenCall& call);

/// The member whose window holds the result: the root, or, where there is none, the last one of `group`, so that its own data comes
/// last in rank order as in order of arrival.
[[nodiscard]] int taker(const Shape& shape, std::span<const int> group) noexcept;

}  // namespace crosslane::collective::shared_buffer
