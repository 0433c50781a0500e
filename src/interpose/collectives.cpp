// See collectives.h.
#include "interpose/collectives.h"

#include "base/error.h"
#include "base/log.h"
#include "interpose/across_nodes.h"
#include "interpose/alone.h"
#include "interpose/call_facts.h"
#include "interpose/direct_buffers.h"
#include "interpose/role.h"
#include "interpose/route.h"
#include "interpose/starting.h"
#include "interpose/teams.h"
#include "interpose/undertaking.h"
#include "mpi/status.h"

#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace crosslane::interpose {
namespace {

// False where all members go to MPI instead.
bool run_direct(Process& process, Teams& teams, team::Team& team, const CollectiveCall& call, const Role& role,
                const engine::Watch& watch) {
  const trace::Span span(process.tracer(), trace::Kind::call, call.call, role.bytes());
  std::optional<DirectBuffers> buffers;
  try {
    buffers.emplace(process, team, call, role);
    if (teams.blocking().checks()) buffers->side().claim = claim_of(process, seat_in(team), call, role);
  } catch (...) {
    teams.blocking().excuse(team, share::Excuse::failed, watch);
    throw;
  }
  const collective::Algorithm* const algorithm = teams.blocking().run(team, role.shape, buffers->side(), watch);
  if (algorithm == nullptr) return false;
  teams.count(*algorithm);
  process.took_route(call.call, algorithm->name, role.bytes());
  buffers->lower();
  return true;
}

// A direct call that was only started.
class DirectUndertaking final : public Undertaking {
 public:
  DirectUndertaking(Process& process, std::shared_ptr<team::Team> team, const CollectiveCall& call, const Role& role)
      : process_(process),
        call_(call.call),
        bytes_(role.bytes()),
        buffers_(std::make_shared<DirectBuffers>(process, *team, call, role)) {
    started_->team = std::move(team);
    started_->shape = role.shape;
    started_->mine = buffers_->side();
    started_->kept = buffers_;
  }
  /// That only compares what ranks were called with: this one was called with nothing that could go direct.
  DirectUndertaking(Process& process, std::shared_ptr<team::Team> team, const CollectiveCall& call)
      : process_(process), call_(call.call) {
    started_->team = std::move(team);
    started_->compares_only = true;
  }
  /// That only tells the others why this rank takes no part.
  DirectUndertaking(Process& process, std::shared_ptr<team::Team> team, const CollectiveCall& call,
                    share::Excuse excuse)
      : process_(process), call_(call.call) {
    started_->team = std::move(team);
    started_->excuse = excuse;
  }

  void start(const collective::Claim& claim) {
    started_->mine.claim = claim;
    Teams& teams = *process_.teams();
    teams.blocking().start(started_, teams.helper_if_any());
  }

  [[nodiscard]] const std::shared_ptr<collective::Started>& started() const noexcept { return started_; }

  [[nodiscard]] bool over() const noexcept override { return started_->over.done(); }
  void deliver() override {
    if (started_->error || !buffers_) return;
    process_.teams()->count(*started_->algorithm);
    process_.took_route(call_, started_->algorithm->name, bytes_);
    buffers_->lower();
    buffers_.reset();
    started_->kept.reset();
  }
  void rethrow() const override {
    started_->over.rethrow();
    if (started_->error) std::rethrow_exception(started_->error);
  }
  [[nodiscard]] MPI_Status status() const override { return mpi::empty_status(process_.library().below()); }
  [[nodiscard]] std::string details() const override { return started_->details(); }

 private:
  Process& process_;
  const char* call_;
  std::uint64_t bytes_ = 0;
  std::shared_ptr<collective::Started> started_ = std::make_shared<collective::Started>();
  std::shared_ptr<DirectBuffers> buffers_;  // until it was delivered
};

// One step towards being connected, if it is not; why this rank cannot, or cannot yet, is told: of the first communicator to everybody.
// `whose`: in place of all of the communicator's calls.
void prepare(Teams& teams, team::Team& team, const engine::Watch& watch, const char* whose = nullptr) {
  team::Home* const home = teams.home();
  if (home == nullptr) return;
  if (const auto refusal = team.prepare(*home)) {
    const bool first = refusal->passes ? teams.first_shortage() : teams.first_refusal();
    base::log(first ? base::Topic::warning : base::Topic::info, "{}: {} go through the host{}: {}",
              watch.name(watch.context), whose == nullptr ? "collectives on GPU memory" : whose,
              refusal->passes ? " until there is memory for them" : "", refusal->why);
  }
}

// Comes to a call of a team, whose role it takes as long as it can go direct; one that is known, but goes to MPI, is `refused`. Returns which way it
// goes on all ranks.
share::Verdict come(const Site& site, Teams& teams, team::Team& team, const CollectiveCall& call,
                    base::FunctionRef<std::optional<Role>()> find_role, std::optional<Role>& role,
                    std::optional<Role>& refused, team::Pace pace, const engine::Watch& watch,
                    const char* whose = nullptr) {
  Process& process = site.process();
  bool wishes = false, ready = false, matched = true;
  if (process.active() && process.gpu().present()) {
    process.tend();
    wishes = passes_gpu_memory(site, call);
    // Others may have it go direct. Whoever passes GPU memory has asked already.
    if (!wishes && team.connected()) static_cast<void>(teams.standing_home());
    if (wishes || team.connected()) role = find_role();
    // Who has nothing to send or to receive has no say where others have.
    if (!wishes && role && uneven(call.collective)) wishes = teams.home() != nullptr && !role->send && !role->receive;
    if (role && teams.choice().left_to_mpi(role->shape, team.size())) refused = std::exchange(role, std::nullopt);
    if (wishes && role && !team.connected()) prepare(teams, team, watch, whose);
    // Whether an algorithm takes the call is known, and the same on all members, once all are connected. Asked once: that may
    // come true at any time, and this rank must not wish for what it took for impossible, or not know to be possible.
    ready = team.connected_everywhere();
    if (ready && role && !teams.blocking().takes(team, role->shape)) refused = std::exchange(role, std::nullopt);
    // Who may not wait for others for an answer wishes to go direct once all have it. Another rank may know by now that they have.
    const bool tells = pace == team::Pace::starting && call.edges.tells_edges_apart();
    matched = !tells || team.single_edges() || team.everybody_matched(call.edges);
    const auto& seen = site.seen();
    const team::Home* const home = teams.home();
    if (wishes && ready && role && home != nullptr && seen && seen->kind == gpu::PointerInfo::Kind::device)
      teams.pass_elsewhere(*home, seen->context, seen->device, call.call);
  }
  // Where calls are compared, all blocking ones that pass GPU memory come together, whatever becomes of them.
  const bool compares = teams.blocking().checks() && pace == team::Pace::blocking;
  auto wish = share::Verdict::staged;
  if (wishes && ready) {
    if (compares || (role && matched))
      wish = share::Verdict::direct;
    else if (role && role->edges_askable)
      wish = share::Verdict::asking;
  }
  return team.enter(wish, pace, watch);
}

// Of a call of all ranks that may wait for each other, some of which have several edges to another: has the MPI tell how it matches them,
// if it has not. False where it does not tell; `role` is found again where it tells something new.
bool match_edges(Process& process, const CollectiveCall& call, std::optional<Role>& role,
                 base::FunctionRef<std::optional<Role>()> find_role) {
  team::Neighbourhood* const topology = process.communicators()->of(call.comm).neighbourhood.get();
  if (topology == nullptr) return false;
  if (!topology->asked(call.edges)) {
    static_cast<void>(topology->ask(process.library().below(), call.comm, call.edges));
    if (role) role = find_role();
  }
  return topology->matched(call.edges);
}

// What the MPI has answered since, of calls that are only started: before one.
void hear_of_edges(Process& process, const team::Team& team, const CollectiveCall& call) {
  if (!call.edges.tells_edges_apart()) return;
  team::Neighbourhood* const topology = process.communicators()->of(call.comm).neighbourhood.get();
  if (topology == nullptr || !topology->asked(call.edges)) return;
  topology->listen(process.library().below());
  if (topology->matched(call.edges)) team.show_matched(call.edges);
}

// Who has failed before its part in a direct call began comes all the same: the others wait for it. Where there is no memory for coming later, it comes
// now, behind the calls that were started before, and waits for all others to come: which a program may not expect of a nonblocking call, but it
// has an error to tell.
void come_in_vain(Process& process, const std::shared_ptr<team::Team>& team, const CollectiveCall& call) {
  try {
    DirectUndertaking vain(process, team, call, share::Excuse::failed);
    std::list kept{vain.started()};
    vain.start({});
    process.teams()->keep(std::move(kept));
  } catch (const std::bad_alloc&) {
    const NamedCommunicator named{process, call.comm};
    process.teams()->blocking().excuse(*team, share::Excuse::failed,
                                       {.call = call.call, .name = NamedCommunicator::name, .context = &named});
  }
}

// A direct call under way, of whose team the verdict was so.
std::unique_ptr<DirectUndertaking> undertake(Process& process, const std::shared_ptr<team::Team>& team,
                                             const CollectiveCall& call, const std::optional<Role>& role,
                                             const collective::Claim& claim) {
  std::unique_ptr<DirectUndertaking> undertaking;
  try {
    if (process.teams()->home() == nullptr)
      undertaking = std::make_unique<DirectUndertaking>(process, team, call, share::Excuse::withdrawn);
    else if (role)
      undertaking = std::make_unique<DirectUndertaking>(process, team, call, *role);
    else if (process.teams()->blocking().checks())
      undertaking = std::make_unique<DirectUndertaking>(process, team, call);
    else
      throw base::Error(base::ErrorClass::intern, "ranks differ in what they pass to one collective");
    undertaking->start(claim);
  } catch (...) {
    come_in_vain(process, team, call);
    throw;
  }
  return undertaking;
}

// What each start of a persistent collective needs to know; its datatypes and operation may be freed by then.
class PersistentCollective final : public Starter {
 public:
  PersistentCollective(Process& process, const CollectiveCall& call)
      : process_(process),
        call_(call),
        team_(process.teams()->for_persistent(call.comm)),
        communicator_(process.communicators()->share(call.comm)),
        role_(role_in(process, seat_in(*team_), call)),
        claim_(claim_of(process, seat_in(*team_), call, role_)) {}

  /// When it is made, so that the second start can go direct.
  void prepare(const Site& site) {
    Teams& teams = *process_.teams();
    if (process_.active() && process_.gpu().present() && role_ && passes_gpu_memory(site, call_))
      interpose::prepare(teams, *team_, watch(), starts);
  }

  int start(const Site& site, std::unique_ptr<Undertaking>& undertaking) override {
    Teams& teams = *process_.teams();
    std::optional<Role> role, refused;
    const auto verdict = come(
        site, teams, *team_, call_, [this] { return role_; }, role, refused, team::Pace::starting, watch(), starts);
    if (verdict != share::Verdict::direct) return mpi::success;
    collective::Claim claim = claim_;
    claim.direct = role.has_value();
    undertaking = undertake(process_, team_, call_, role, claim);
    return mpi::success;
  }

  [[nodiscard]] bool is_awaited() const noexcept override { return true; }

 private:
  static constexpr const char* starts = "the starts of a persistent collective";
  [[nodiscard]] engine::Watch watch() const { return {.call = call_.call, .name = describe, .context = this}; }
  static std::string describe(const void* context) {
    const auto& mine = *static_cast<const PersistentCollective*>(context);
    if (mine.communicator_->freed.load(std::memory_order_acquire)) return "a communicator that was freed";
    return mine.process_.communicators()->name_of(mine.call_.comm);
  }

  Process& process_;
  const CollectiveCall call_;
  const std::shared_ptr<team::Team> team_;
  const std::shared_ptr<team::CommunicatorFacts> communicator_;
  const std::optional<Role> role_;
  const collective::Claim claim_;
};

}  // namespace

int run_collective(const Site& site, const CollectiveCall& call, base::FunctionRef<int()> otherwise) {
  Process& process = site.process();
  std::optional<Nested> nested;  // what follows makes MPI calls that are not to be counted
  try {
    nested.emplace();
    Teams& teams = *process.teams();
    team::Team* const team = teams.of(call.comm).get();
    if (team == nullptr) return run_alone(site, call) ? mpi::success : run_across_nodes(site, call, otherwise);
    const NamedCommunicator named{process, call.comm};
    const engine::Watch watch{.call = call.call, .name = NamedCommunicator::name, .context = &named};
    std::optional<Role> role, refused;
    const auto find_role = [&] { return role_in(process, seat_in(*team), call); };
    const auto verdict = come(site, teams, *team, call, find_role, role, refused, team::Pace::blocking, watch);
    if (verdict != share::Verdict::direct) return otherwise();
    if (call.edges.tells_edges_apart() && !team->single_edges()) {
      bool matched = false;
      try {
        matched = match_edges(process, call, role, find_role);
      } catch (...) {
        teams.blocking().excuse(*team, share::Excuse::failed, watch);
        throw;
      }
      if (!matched) {
        teams.blocking().excuse(*team, share::Excuse::unmatched, watch);
        return otherwise();
      }
    }
    if (teams.home() == nullptr) {
      teams.blocking().excuse(*team, share::Excuse::withdrawn, watch);
      return otherwise();
    }
    if (!role && teams.blocking().checks()) {
      std::optional<collective::Pieces> pieces;
      if (refused && uneven(call.collective)) pieces = pieces_of(*refused, {team->size(), team->me()}, true, true);
      teams.blocking().compare(*team, claim_of(process, seat_in(*team), call, role), pieces ? &*pieces : nullptr,
                               watch);
      return otherwise();
    }
    if (!role) {
      teams.blocking().excuse(*team, share::Excuse::failed, watch);
      throw base::Error(base::ErrorClass::intern, "ranks differ in what they pass to one collective");
    }
    return run_direct(process, teams, *team, call, *role, watch) ? mpi::success : otherwise();
  } catch (...) {
    return raise_caught(process, Target::of_comm(call.comm), call.call);
  }
}

int start_collective(const Site& site, const CollectiveCall& call, MPI_Request* request,
                     base::FunctionRef<int()> otherwise) {
  Process& process = site.process();
  std::optional<Nested> nested;
  try {
    nested.emplace();
    Teams& teams = *process.teams();
    const std::shared_ptr<team::Team> team = teams.of(call.comm);
    if (team == nullptr) return run_alone(site, call) ? lend_complete_request(process, request) : otherwise();
    const NamedCommunicator named{process, call.comm};
    const engine::Watch watch{.call = call.call, .name = NamedCommunicator::name, .context = &named};
    std::optional<Role> role, refused;
    const auto find_role = [&] { return role_in(process, seat_in(*team), call); };
    hear_of_edges(process, *team, call);
    const auto verdict = come(site, teams, *team, call, find_role, role, refused, team::Pace::starting, watch);
    if (verdict == share::Verdict::asking) {
      auto& topology = *process.communicators()->of(call.comm).neighbourhood;
      teams.keep(topology.ask(process.library().below(), call.comm, call.edges));
    }
    if (verdict != share::Verdict::direct) return otherwise();
    const trace::Span span(process.tracer(), trace::Kind::call, call.call, role ? role->bytes() : 0);
    std::shared_ptr<Operation> operation;
    collective::Claim claim;
    int code = mpi::success;
    try {
      operation = make_operation();
      process.settle(false);
      operation->call = call.call;
      operation->target = Target::of_comm(call.comm);
      operation->place(process.communicators());
      operation->active = true;
      if (teams.blocking().checks()) claim = claim_of(process, seat_in(*team), call, role);
      code = lend_idle_request(process, request);
    } catch (...) {
      come_in_vain(process, team, call);
      throw;
    }
    if (code != mpi::success) {
      come_in_vain(process, team, call);
      return code;
    }
    try {
      operation->undertaking = undertake(process, team, call, role, claim);
    } catch (...) {
      take_back_idle_request(process, request);
      throw;
    }
    process.requests().add(*request, std::move(operation));
    return mpi::success;
  } catch (...) {
    return raise_caught(process, Target::of_comm(call.comm), call.call);
  }
}

int init_collective(const Site& site, const CollectiveCall& call, MPI_Request* request,
                    base::FunctionRef<int()> otherwise) {
  Process& process = site.process();
  std::optional<Nested> nested;
  try {
    nested.emplace();
    if (process.teams()->of(call.comm) == nullptr) return otherwise();
    auto starter = std::make_unique<PersistentCollective>(process, call);
    if (const int code = start_request(process, request, otherwise); code != mpi::success) return code;
    // It is known already where MPI has host copies of GPU memory.
    auto operation = process.requests().find(*request);
    if (operation == nullptr) {
      operation = make_operation();
      operation->call = call.call;
      operation->target = Target::of_comm(call.comm);
      operation->place(process.communicators());
      operation->persistent = true;
      process.requests().add(*request, operation);
    }
    starter->prepare(site);
    operation->starter = std::move(starter);
    return mpi::success;
  } catch (...) {
    return raise_caught(process, Target::of_comm(call.comm), call.call);
  }
}

}  // namespace crosslane::interpose
