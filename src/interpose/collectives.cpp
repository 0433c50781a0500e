// See collectives.h.
#include "interpose/collectives.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/copy.h"
#include "interpose/elements.h"
#include "interpose/lifted.h"
#include "interpose/role.h"
#include "interpose/route.h"
#include "interpose/teams.h"

#include <exception>
#include <optional>
#include <string>

namespace crosslane::interpose {
namespace {

using collective::Collective;

// Nothing where the call goes to MPI whatever the team: the user prefers so, or its arguments are wrong, which MPI's route explains.
std::optional<Role> role_in(Process& process, Teams& teams, team::Team& team, const CollectiveCall& call) {
  try {
    auto role = role_of(process, call, {team.size(), team.me()}, teams.byte());
    if (role && teams.choice().left_to_mpi(role->shape)) role.reset();
    return role;
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

// What this rank was called with, for the others to compare.
collective::Claim claim_of(Process& process, const team::Team& team, const CollectiveCall& call,
                           const std::optional<Role>& role) {
  const auto& handles = process.library().handles();
  const bool sends = (call.collective == Collective::gather && team.me() != call.root) ||
                     (call.collective == Collective::scatter && team.me() == call.root);
  const MPI_Count count = sends ? call.send_count : call.receive_count;
  const MPI_Datatype type = sends ? call.send_type : call.receive_type;
  collective::Claim claim{.collective = call.collective, .root = call.root, .direct = role.has_value()};
  try {
    if (count > 0 && !uneven(call.collective)) claim.bytes = process.layouts().of(type)->packed_size(count);
  } catch (const base::Error&) {
    claim.bytes = 0;  // not a datatype: the call's own route tells
  }
  if (combines(call.collective)) {
    claim.element = element_of(handles, type);
    claim.op = op_of(handles, call.op);
  }
  return claim;
}

struct Context {
  Process& process;
  MPI_Comm comm;
};

std::string describe_communicator(const void* context) {
  const auto& [process, comm] = *static_cast<const Context*>(context);
  return process.communicators()->name_of(comm);
}

void run_direct(Process& process, Teams& teams, team::Team& team, const CollectiveCall& call, const Role& role,
                const engine::Watch& watch) {
  team::Home& home = *teams.home();
  const trace::Span span(process.tracer(), trace::Kind::call, call.call, role.bytes());
  collective::Side side;
  if (teams.blocking().checks()) side.claim = claim_of(process, team, call, role);
  std::optional<Lifted> send, receive;
  const bool blocks = uneven(role.shape.collective);
  const bool show = collective::worth_showing(role.shape, team.size(), role.receive ? role.receive->extent.bytes() : 0);
  if (role.receive)
    receive.emplace(process, home, call.call, role.receive->argument, role.receive->base, role.receive->extent);
  if (role.send) send.emplace(process, home, call.call, role.send->argument, role.send->base, role.send->extent);
  if (receive) {
    receive->make_room();
    side.buffers.receive = receive->data();
    // In place of what is sent nobody may write before it is.
    const bool sent = role.in_place && role.shape.collective == Collective::alltoallv;
    if (show && !sent) side.receive = receive->show();
  }
  if (send) {
    send->make_room();
    send->lift();
    side.buffers.send = send->data();
    if (show && (!blocks || combines(role.shape.collective))) side.send = send->show();
    // MPI_IN_PLACE at the root of a scatter: its block stays where it is.
    if (!receive) {
      const auto own = static_cast<std::size_t>(team.me()) * role.shape.bytes;
      if (role.shape.collective == Collective::scatter) side.buffers.receive = send->data() + own;
      if (role.shape.collective == Collective::scatterv) side.buffers.receive = send->data();
    }
  } else if (role.in_place && receive) {
    receive->lift();
    side.buffers.send = receive->data() + role.in_place_offset;
    side.send = side.receive;
    side.send.offset += role.in_place_offset;
  }
  if (blocks)
    side.pieces = pieces_of(role, {team.size(), team.me()}, send && send->is_buffer(), receive && receive->is_buffer());
  std::optional<gpu::Buffer> kept;
  if (role.saved) {
    const std::size_t bytes = role.receive->extent.bytes();
    kept = home.lend(bytes);
    const gpu::ContextScope scope(home.driver(), home.context());
    gpu::copy_async(kept->data(), receive->data(), bytes, *team.connection().stream);
    side.buffers.send = kept->data();
    side.send = {};
  }
  const collective::Algorithm& algorithm = teams.blocking().run(team, role.shape, side, watch);
  teams.count(algorithm);
  process.took_route(call.call, algorithm.name, role.bytes());
  // The root of a broadcast only gives: its buffer may be read by others meanwhile, or not be writable.
  const bool gives = role.shape.collective == Collective::broadcast && team.me() == role.shape.root;
  if (receive && !gives) receive->lower();
  if (kept) home.take_back(*std::move(kept));
}

// True if this rank passes GPU memory, which then is of the GPU that it takes part with.
bool passes_gpu_memory(const Site& site, Teams& teams, const CollectiveCall& call) {
  for (const void* const buffer : {static_cast<const void*>(call.receive), call.send}) {
    if (buffer == nullptr || !site.on_gpu(buffer)) continue;
    if (teams.home() != nullptr) return true;
    Process& process = site.process();
    const auto info = process.gpu().inspect(buffer);
    if (!info.on_gpu()) continue;  // not significant, or wrong: for the call's own route to tell
    return teams.home_at(process.copier().place(info)) != nullptr;
  }
  return false;
}

}  // namespace

int run_collective(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise) noexcept {
  Process& process = site.process();
  std::optional<Nested> nested;  // what follows makes MPI calls that are not to be counted
  try {
    nested.emplace();
    Teams& teams = *process.teams();
    team::Team* const team = teams.of(call.comm);
    if (team == nullptr) return otherwise();
    const Context context{process, call.comm};
    const engine::Watch watch{.call = call.call, .name = describe_communicator, .context = &context};
    std::optional<Role> role;
    bool wishes = false, ready = false;
    if (process.active() && process.gpu().present()) {
      wishes = passes_gpu_memory(site, teams, call);
      if (wishes || team->connected()) role = role_in(process, teams, *team, call);
      // Who has nothing to send or to receive has no say where others have.
      if (!wishes && role && uneven(call.collective)) wishes = teams.home() != nullptr && !role->send && !role->receive;
      if (wishes && role && !team->connected()) {
        if (const auto refusal = team->prepare(*teams.home()))
          base::log(base::Topic::info, "{}: collectives go through the host: {}", describe_communicator(&context),
                    *refusal);
      }
      // Whether an algorithm takes the call is known, and the same on all members, once all are connected. Asked once: that may
      // come true at any time, and this rank must not wish for what it took for impossible, or not know to be possible.
      ready = team->connected_everywhere();
      if (ready && role && !teams.blocking().takes(*team, role->shape)) role.reset();
    }
    // Where calls are compared, all that pass GPU memory come together, whatever becomes of them.
    const bool checks = teams.blocking().checks();
    if (team->enter(wishes && ready && (role || checks), watch) != share::Verdict::direct) return otherwise();
    if (!role && checks) {
      teams.blocking().compare(*team, claim_of(process, *team, call, role), watch);
      return otherwise();
    }
    if (!role) throw base::Error(base::ErrorClass::intern, "ranks differ in what they pass to one collective");
    run_direct(process, teams, *team, call, *role, watch);
    return mpi::success;
  } catch (const base::Error& error) {
    return raise(process, Target::of_comm(call.comm), call.call, error);
  } catch (const std::exception& error) {
    return raise(process, Target::of_comm(call.comm), call.call, base::Error(base::ErrorClass::intern, error.what()));
  }
}

int make_communicator(const Site& site, MPI_Comm parent, MPI_Comm* child, base::FunctionRef<int()> make) noexcept {
  const Nested nested;
  const int code = make();
  if (code == mpi::success) site.process().teams()->created(parent, *child);
  return code;
}

}  // namespace crosslane::interpose
