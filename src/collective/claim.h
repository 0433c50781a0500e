// Claim: what a rank was called with, shown to the others of its team before a direct call under CROSSLANE_CHECK=1, so that calls
// that do not fit together are told instead of run. It must not know how calls run.
#pragma once

#include "collective/shape.h"
#include "team/team.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::collective {

struct Claim {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;  ///< As Shape::bytes; of the type's bytes without gaps.
  int root = 0;           ///< Where there is one.
  /// Where elements are combined; nothing for what kernels do not know (derived types, operations of the application's own).
  std::optional<kernel::Element> element{};
  std::optional<kernel::Op> op{};
  bool among_neighbours = false;  ///< Along the edges of a topology.
  bool direct = false;            ///< This rank can run it between GPUs.
};

/// As an arrival record holds it. `shows_passages`: the rank shows what it sends to each and expects from each (share::Passage), too.
[[nodiscard]] std::array<std::uint64_t, 4> encode(const Claim& claim, bool shows_passages) noexcept;

/// Of all ranks of a communicator, by rank, as encoded: throws Error (argument) that names what differs between which of them.
void compare_claims(std::span<const std::array<std::uint64_t, 4>> claims);

/// After all have arrived at a direct call with claims: throws Error (argument), the same on all members, that names what differs
/// between which ranks of the communicator.
void compare_claims(const team::Team& team);

}  // namespace crosslane::collective
