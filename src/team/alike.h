// What must be alike on all ranks of a job, as lines NAME=value, and what to tell where it is not. It must not know what the
// names mean.
#pragma once

#include "team/messenger.h"

#include <span>
#include <string>
#include <string_view>

namespace crosslane::team {

/// Of each rank's lines, in rank order: one line a name whose values differ, with the values and the ranks that have them.
/// Empty where all are alike.
[[nodiscard]] std::string differences(std::span<const std::string> lines);

/// A task of all ranks, once it is known that some differ: exchanges the lines and throws Error (argument), the same on all
/// of them, that names settings, values and ranks.
engine::Task<> refuse_differences(const Messenger& messenger, int ranks, std::string_view mine);

}  // namespace crosslane::team
