// See call_facts.h.
#include "interpose/call_facts.h"

#include "interpose/elements.h"
#include "interpose/teams.h"

#include <exception>

namespace crosslane::interpose {

using collective::Collective;

std::optional<Role> role_in(Process& process, Seat seat, const CollectiveCall& call) {
  try {
    const bool among_neighbours = call.edges.procedure != team::NeighbourCall::none;
    const auto* const topology =
        among_neighbours ? process.communicators()->of(call.comm).neighbourhood.get() : nullptr;
    return role_of(process, call, seat, process.teams()->byte(), topology);
  } catch (const std::exception&) {
    return std::nullopt;  // as one that cannot go direct; its own route tells
  }
}

collective::Claim claim_of(Process& process, Seat seat, const CollectiveCall& call, const std::optional<Role>& role) {
  const auto& handles = process.library().handles();
  const bool sends = (call.collective == Collective::gather && seat.me != call.root) ||
                     (call.collective == Collective::scatter && seat.me == call.root);
  const MPI_Count count = sends ? call.send_count : call.receive_count;
  const MPI_Datatype type = sends ? call.send_type : call.receive_type;
  collective::Claim claim{.collective = call.collective,
                          .root = call.root,
                          .among_neighbours = call.edges.procedure != team::NeighbourCall::none,
                          .direct = role.has_value()};
  try {
    if (count > 0 && !uneven(call.collective)) claim.bytes = process.layouts().of(type)->packed_size(count);
  } catch (const std::exception&) {
    claim.bytes = 0;  // not a datatype: the call's own route tells
  }
  if (combines(call.collective)) {
    claim.element = element_of(handles, type);
    claim.op = op_of(handles, call.op);
  }
  return claim;
}

bool passes_gpu_memory(const Site& site, const CollectiveCall& call) {
  Teams& teams = *site.process().teams();
  for (const void* const buffer : {static_cast<const void*>(call.receive), call.send}) {
    if (buffer == nullptr || !site.on_gpu(buffer)) continue;
    if (teams.standing_home() != nullptr) return true;
    Process& process = site.process();
    const auto info = process.gpu().inspect(buffer);
    if (!info.on_gpu()) continue;  // not significant, or wrong: for the call's own route to tell
    return teams.home_at(process.copier().place(info)) != nullptr;
  }
  return false;
}

std::string NamedCommunicator::name(const void* context) {
  const auto& [process, comm] = *static_cast<const NamedCommunicator*>(context);
  return process.communicators() == nullptr ? std::string("a communicator") : process.communicators()->name_of(comm);
}

}  // namespace crosslane::interpose
