// Small and middling messages in one flight: each rank writes its data with flags into every peer's slots, and combines or places what it
// finds in its own (kernel/low_latency.h). One kernel, no barrier.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::low_latency {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] std::unique_ptr<Plan> prepare(const Call& call);
/// In two flights: all send each its share, and each sends its result to all that want it. All-reduce, reduce.
[[nodiscard]] bool supports_two_shot(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] std::unique_ptr<Plan> prepare_two_shot(const Call& call);
/// In lines, whose flags cost a sixteenth: both ways, as the collective needs. Reductions in shares: all-reduce and reduce in two flights,
/// reduce-scatter in one.
[[nodiscard]] bool supports_lines(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] std::unique_ptr<Plan> prepare_lines(const Call& call);

}  // namespace crosslane::collective::low_latency
