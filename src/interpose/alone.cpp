// See alone.h.
#include "interpose/alone.h"

#include "interpose/call_facts.h"
#include "interpose/teams.h"
#include "lane/copier.h"

#include <cstddef>
#include <optional>

namespace crosslane::interpose {

using collective::Collective;

namespace {

// Nothing of what is not all in one allocation of a GPU.
std::optional<lane::Place> place_of(Process& process, const Part& part) {
  const auto [begin, end] = part.extent.layout->span(part.extent.count);
  const std::byte* const first = lane::byte_at(part.base, static_cast<std::ptrdiff_t>(begin));
  const auto info = process.gpu().inspect(first);
  if (info.kind != gpu::PointerInfo::Kind::device || !info.holds(first, static_cast<std::size_t>(end - begin)))
    return std::nullopt;
  return process.copier().place(info);
}

lane::Side side_of(const Part& part) { return lane::Side::of(part.base, *part.extent.layout, part.extent.count); }

}  // namespace

bool run_alone(const Site& site, const CollectiveCall& call) {
  Process& process = site.process();
  if (!process.active() || !process.gpu().present() || call.edges.procedure != team::NeighbourCall::none) return false;
  const team::CommunicatorFacts& facts = process.communicators()->of(call.comm);
  if (facts.inter || facts.world_ranks.size() != 1) return false;
  const auto on_gpu = [&](const void* buffer) { return buffer != nullptr && site.on_gpu(buffer); };
  if (!on_gpu(call.send) && !on_gpu(call.receive)) return false;
  const std::optional<Role> role = role_in(process, {1, 0}, call);
  if (!role || process.teams()->choice().left_to_mpi(role->shape, 1)) return false;
  const trace::Span span(process.tracer(), trace::Kind::call, call.call, role->bytes());
  // It has what it broadcasts, and nothing comes before the first rank in an exclusive scan.
  const bool scatters = call.collective == Collective::scatter || call.collective == Collective::scatterv;
  const bool receives_in_place = call.receive == mpi::in_place();
  if (receives_in_place && !scatters) return false;  // MPI has its own words
  const bool stays = call.send == mpi::in_place() || receives_in_place || call.collective == Collective::broadcast ||
                     call.collective == Collective::exscan;
  if (!stays) {
    if (!role->send || !role->receive || role->send->extent.bytes() != role->receive->extent.bytes()) return false;
    const auto from = place_of(process, *role->send);
    const auto to = place_of(process, *role->receive);
    if (!from || !to || from->context != to->context) return false;
    const NamedCommunicator named{process, call.comm};
    lane::Batch batch(process.copier(), {.call = call.call, .name = NamedCommunicator::name, .context = &named});
    batch.across(to->with(*from), side_of(*role->receive), side_of(*role->send), 0, role->receive->extent.bytes());
    batch.wait();
  }
  process.took_route(call.call, "copy", role->bytes());
  return true;
}

}  // namespace crosslane::interpose
