// What a rank finds out about its own arguments of a collective call before it is known which way the call goes. It must not know
// the ways.
#pragma once

#include "collective/claim.h"
#include "interpose/process.h"
#include "interpose/role.h"
#include "team/team.h"

#include <optional>
#include <string>

namespace crosslane::interpose {

[[nodiscard]] inline Seat seat_in(const team::Team& team) { return {team.size(), team.me()}; }

/// Nothing where the call goes to MPI whatever the team: it has no direct form, or its arguments are wrong, which MPI's route explains.
[[nodiscard]] std::optional<Role> role_in(Process& process, Seat seat, const CollectiveCall& call);

/// What this rank was called with, for the others to compare.
[[nodiscard]] collective::Claim claim_of(Process& process, Seat seat, const CollectiveCall& call,
                                         const std::optional<Role>& role);

/// True if this rank passes GPU memory, which then is of the GPU that it takes part with.
[[nodiscard]] bool passes_gpu_memory(const Site& site, const CollectiveCall& call);

/// For the watchdog.
struct NamedCommunicator {
  Process& process;
  MPI_Comm comm;
  static std::string name(const void* context);
};

}  // namespace crosslane::interpose
