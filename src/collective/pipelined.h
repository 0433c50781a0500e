// Large reductions in one kernel that pushes parts into the owners' large windows and results into the application's own buffers,
// chunk by chunk (kernel/pipelined.h): both directions of every link are busy from the first chunk on.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::pipelined {

[[nodiscard]] bool supports(const Shape& shape, const TeamFacts& facts);
/// All-reduce, reduce, reduce-scatter.
[[nodiscard]] std::unique_ptr<Plan> prepare(const Call& call);
/// A reduce whose kernels tell each other where the members' buffers are: if all have mapped them, shares are read from there, and written to
/// the root's; if not, it goes as above.
[[nodiscard]] bool supports_told(const Shape& shape, const TeamFacts& facts);
[[nodiscard]] std::unique_ptr<Plan> prepare_told(const Call& call);
/// Whether its plans look at what Call says of Landing and Parts.
[[nodiscard]] bool tells(const Algorithm& algorithm) noexcept;
/// The first half of an all-reduce: each member has its share's result where it belongs in its own buffer.
[[nodiscard]] std::unique_ptr<Plan> prepare_shares(const Call& call);

}  // namespace crosslane::collective::pipelined
