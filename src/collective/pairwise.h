// Gathers, scatters and all-to-alls of unequal blocks, where no member knows the sizes that the others exchange: each pair goes on by
// itself, in chunks through the sender's window (kernel/pairwise.h). One launch, whatever the sizes.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::pairwise {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] std::unique_ptr<Plan> prepare(const Call& call);

}  // namespace crosslane::collective::pairwise
