// Messages of middling size, and buffers that others cannot map: through the members' windows, part by part. Each part costs one
// copy into the own window; then everyone reads what it needs from its peers'.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::window {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
/// Moves; and reductions in which each rank that wants a result combines all of it ("one-shot").
[[nodiscard]] std::unique_ptr<Plan> prepare_one_shot(const Call& call);
/// All-reduce and reduce: each rank combines its share and writes it into the windows of all that want it ("two-shot").
[[nodiscard]] std::unique_ptr<Plan> prepare_two_shot(const Call& call);

}  // namespace crosslane::collective::window
