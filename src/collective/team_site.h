// A relay on a team: its windows, its stream, its entries on the board, and what to do when a member fails. It must not know trees.
#pragma once

#include "collective/driven.h"
#include "collective/relay.h"

#include <vector>

namespace crosslane::collective {

/// Runs the call along the levels. Throws Error (other) naming the member where one did not do its part within the limit, and where
/// the GPU fails.
[[nodiscard]] engine::Task<> relay_in_team(DrivenCall driven, std::vector<RelayLevel> levels);

/// True where relay_in_team() can do it, but for its order of combining.
[[nodiscard]] bool relays(const Shape& shape, const TeamFacts& facts) noexcept;

}  // namespace crosslane::collective
