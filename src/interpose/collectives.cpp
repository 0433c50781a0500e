// See collectives.h.
#include "interpose/collectives.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/copy.h"
#include "interpose/elements.h"
#include "interpose/lifted.h"
#include "interpose/route.h"
#include "interpose/teams.h"
#include "kernel/launch.h"

#include <exception>
#include <optional>
#include <string>

namespace crosslane::interpose {
namespace {

using collective::Collective;
using collective::Shape;

// A buffer of a call as this rank sees it.
struct Part {
  const char* argument;
  const void* base = nullptr;
  Extent extent;
};

// What this rank does in a call.
struct Role {
  Shape shape;
  std::optional<Part> send, receive;
  /// MPI_IN_PLACE: the data is in the receive buffer, `in_place_offset` bytes from its start ...
  bool in_place = false;
  std::size_t in_place_offset = 0;
  /// ... and has to be saved first, for results are written over it that others have not read yet.
  bool saved = false;
};

class Description {
 public:
  Description(Process& process, const CollectiveCall& call, const team::Team& team)
      : process_(process), call_(call), team_(team), in_place_(call.send == mpi::in_place()) {}

  /// Nothing where no algorithm takes such a call, on any rank: the application's own operations, nothing to send.
  [[nodiscard]] std::optional<Role> role() {
    Role role;
    role.shape.collective = call_.collective;
    role.shape.root = call_.root;
    if (call_.root < 0 || call_.root >= team_.size()) return std::nullopt;
    const bool known = combines(call_.collective) ? describe_combining(role) : describe_moving(role);
    if (!known || role.shape.bytes == 0) return std::nullopt;
    return role;
  }

 private:
  [[nodiscard]] bool at_root() const noexcept { return team_.me() == call_.root; }
  [[nodiscard]] auto members() const noexcept { return static_cast<std::size_t>(team_.size()); }
  [[nodiscard]] auto me() const noexcept { return static_cast<std::size_t>(team_.me()); }

  [[nodiscard]] Extent bytes(std::size_t count) const { return Extent::of_bytes(process_.teams()->byte(), count); }

  // Elements lie in memory as the kernels see them, with their padding.
  bool describe_combining(Role& role) {
    const auto& handles = process_.library().handles();
    const auto element = element_of(handles, call_.receive_type);
    const auto op = op_of(handles, call_.op);
    if (!element || !op || !kernel::Kernels::combines(*op, *element) || call_.receive_count <= 0) return false;
    role.shape.element = *element;
    role.shape.op = *op;
    role.shape.bytes = static_cast<std::size_t>(call_.receive_count) * kernel::bytes_of(*element);
    const bool scatters = call_.collective == Collective::reduce_scatter_block;
    // The receive buffers of who gets no result are not significant, and may be anything.
    const bool wants = call_.collective == Collective::reduce   ? at_root()
                       : call_.collective == Collective::exscan ? me() > 0 || in_place_
                                                                : true;
    if (in_place_ && !wants) return false;
    const std::size_t whole = role.shape.bytes * (scatters ? members() : 1);
    role.in_place = in_place_;
    role.saved = in_place_ && scatters;
    if (!in_place_) role.send = Part{"sendbuf", call_.send, bytes(whole)};
    if (wants) role.receive = Part{"recvbuf", call_.receive, bytes(in_place_ ? whole : role.shape.bytes)};
    return true;
  }

  bool describe_moving(Role& role) {
    switch (call_.collective) {
      case Collective::broadcast:
        role.receive = part("buffer", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        role.in_place = at_root();
        return role.receive.has_value();
      case Collective::gather:
        if (!in_place_) role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, role.shape.bytes);
        if (at_root()) role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        role.in_place = in_place_;
        role.in_place_offset = me() * role.shape.bytes;
        return (in_place_ ? at_root() : role.send.has_value()) && (!at_root() || role.receive);
      case Collective::scatter:
        if (at_root()) role.send = blocks("sendbuf", call_.send, call_.send_count, call_.send_type, role);
        if (call_.receive != mpi::in_place())
          role.receive = part("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        return (!at_root() || role.send) && (role.receive || call_.receive == mpi::in_place());
      case Collective::allgather:
      case Collective::alltoall:
        role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        if (!role.receive) return false;
        role.in_place = in_place_;
        if (call_.collective == Collective::alltoall) {
          role.saved = in_place_;
          if (!in_place_) role.send = blocks("sendbuf", call_.send, call_.send_count, call_.send_type, role);
        } else {
          role.in_place_offset = me() * role.shape.bytes;
          std::size_t bytes = 0;
          if (!in_place_) role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, bytes);
        }
        return in_place_ || role.send;
      default:
        return false;
    }
  }

  std::optional<Part> part(const char* argument, const void* base, MPI_Count count, MPI_Datatype type,
                           std::size_t& bytes) {
    if (count <= 0) return std::nullopt;
    Part part{argument, base, {process_.layouts().of(type), count}};
    bytes = part.extent.bytes();
    if (bytes == 0) return std::nullopt;
    return part;
  }

  // One block a member, one after another as the type's extent says.
  std::optional<Part> blocks(const char* argument, const void* base, MPI_Count count, MPI_Datatype type, Role& role) {
    auto all = part(argument, base, count, type, role.shape.bytes);
    if (all) all->extent.count *= team_.size();
    return all;
  }

  Process& process_;
  const CollectiveCall& call_;
  const team::Team& team_;
  bool in_place_;
};

// Nothing where the call goes to MPI whatever the team: no algorithm takes it, the user prefers so, or its arguments are wrong,
// which MPI's route explains.
std::optional<Role> role_in(Process& process, Teams& teams, const team::Team& team, const CollectiveCall& call) {
  try {
    auto role = Description(process, call, team).role();
    if (role && teams.choice().left_to_mpi(role->shape)) role.reset();
    return role;
  } catch (const base::Error&) {
    return std::nullopt;
  }
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
  collective::Side side;
  std::optional<Lifted> send, receive;
  const bool show = collective::worth_exposing(role.shape, team.size());
  if (role.receive) {
    receive.emplace(process, home, call.call, role.receive->argument, role.receive->base, role.receive->extent);
    side.buffers.receive = receive->data();
    if (show) side.receive = receive->show();
  }
  if (role.send) {
    send.emplace(process, home, call.call, role.send->argument, role.send->base, role.send->extent);
    send->lift();
    side.buffers.send = send->data();
    if (show) side.send = send->show();
    // MPI_IN_PLACE at the root of a scatter: its block stays where it is.
    if (!receive) {
      const auto own = static_cast<std::size_t>(team.me()) * role.shape.bytes;
      if (role.shape.collective == Collective::scatter) side.buffers.receive = send->data() + own;
    }
  } else if (role.in_place) {
    receive->lift();
    side.buffers.send = receive->data() + role.in_place_offset;
    side.send = side.receive;
    side.send.offset += role.in_place_offset;
  }
  std::optional<gpu::Buffer> kept;
  if (role.saved) {
    const std::size_t bytes = role.shape.bytes * static_cast<std::size_t>(team.size());
    kept = home.lend(bytes);
    const gpu::ContextScope scope(home.driver(), home.context());
    gpu::copy_async(kept->data(), receive->data(), bytes, *team.connection().stream);
    side.buffers.send = kept->data();
    side.send = {};
  }
  const collective::Algorithm& algorithm = teams.blocking().run(team, role.shape, side, watch);
  teams.count(algorithm);
  process.log_route(call.call, algorithm.name.data());
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
    bool wishes = false;
    if (process.active() && process.gpu().present()) {
      wishes = passes_gpu_memory(site, teams, call);
      if (wishes || team->connected()) role = role_in(process, teams, *team, call);
      if (wishes && role && !team->connected()) {
        if (const auto refusal = team->prepare(*teams.home()))
          base::log(base::Topic::info, "{}: collectives go through the host: {}", describe_communicator(&context),
                    *refusal);
      }
    }
    if (team->enter(wishes && role, watch) != share::Verdict::direct) return otherwise();
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
