// See blocking.h. How buffers come to be mapped without a rank waiting for another's mapping: a rank tells with each arrival which
// of the last sets of buffers it has reached; a set that all have reached is used without copies, another one goes through
// the windows once, and is reached after the call.
#include "collective/blocking.h"

#include "base/error.h"
#include "base/log.h"
#include "collective/among_nodes.h"
#include "collective/frame.h"
#include "collective/relay.h"
#include "gpu/context.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::collective {
namespace {

// Which buffers of a member others must reach.
struct Needs {
  bool send, receive;
};

Needs needs_of(const team::Team& team, const Shape& shape, int member) {
  if (shape.collective == Collective::reduce_scatter) return {true, false};
  if (uneven(shape.collective)) {
    const auto passages = team.passages(member);
    bool receives = false;
    for (int other = 0; other < team.size(); ++other)
      receives = receives || (other != member && passages[static_cast<std::size_t>(other)].receives != 0);
    return {false, receives};
  }
  const bool root = member == shape.root;
  switch (shape.collective) {
    case Collective::broadcast:
      return {false, true};
    case Collective::reduce:
      return {true, root};
    case Collective::gather:
      return {false, root};
    case Collective::scatter:
    case Collective::allgather:
    case Collective::alltoall:
      return {false, true};
    case Collective::allreduce:
      return {true, true};
    default:
      return {true, false};
  }
}

// How many bytes a call moves through each member.
std::size_t volume(const Shape& shape, int members) noexcept {
  const bool blocks = sends_blocks(shape.collective) || receives_blocks(shape.collective);
  return shape.bytes * static_cast<std::size_t>(blocks ? members : 1);
}
// Of calls that move more a launch is little beside the rest.
constexpr std::size_t most_to_stay_for = std::size_t{4} << 20;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash ^= value + 0x9e3779b97f4a7c15U + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdU;
}

// Names the buffers of a call and what is needed of them; never 0, which stands for nothing.
std::uint64_t fingerprint(const team::Team& team, const Shape& shape) {
  std::uint64_t hash = mixed(static_cast<std::uint64_t>(shape.collective), static_cast<std::uint64_t>(shape.root));
  for (int member = 0; member < team.size(); ++member) {
    const share::Arrival& arrival = team.arrival(member);
    const Needs needs = needs_of(team, shape, member);
    hash = mixed(mixed(hash, arrival.send.id), arrival.receive.id);
    hash = mixed(hash, (needs.send ? 2U : 0U) + (needs.receive ? 1U : 0U));
  }
  return hash | 1;
}

bool exposable(const team::Team& team, const Shape& shape) {
  for (int member = 0; member < team.size(); ++member) {
    const share::Arrival& arrival = team.arrival(member);
    const Needs needs = needs_of(team, shape, member);
    if ((needs.send && arrival.send.id == 0) || (needs.receive && arrival.receive.id == 0)) return false;
  }
  return true;
}

// Every member has reached what the call needs of the others.
bool all_exposed(const team::Team& team, const Shape& shape) {
  if (!exposable(team, shape)) return false;
  const std::uint64_t set = fingerprint(team, shape);
  for (int member = 0; member < team.size(); ++member) {
    const auto& reached = team.arrival(member).facts;
    if (std::ranges::find(reached, set) == reached.end()) return false;
  }
  return true;
}

bool all_have_large_windows(const team::Team& team) {
  for (int member = 0; member < team.size(); ++member)
    if (team.arrival(member).large_windows == 0) return false;
  return true;
}

// All members' buffers as mapped here; what the call does not need of them is null.
struct Reached {
  std::vector<Buffers> all;
  std::vector<std::shared_ptr<const gpu::Mapping>> held;  // calls of other teams may want room for theirs
};

// Nothing where one cannot be mapped.
std::optional<Reached> reach_all(team::Team& team, const Shape& shape, const Buffers& mine,
                                 share::Exposure::Closing closing) {
  share::Exposure& exposure = team.connection().home->exposure();
  Reached reached;
  const auto reach = [&](int local_rank, const share::Exposed& buffer) -> std::byte* {
    auto mapping = exposure.hold(local_rank, buffer, closing);
    if (mapping == nullptr) return nullptr;
    return reached.held.emplace_back(std::move(mapping))->data() + buffer.offset;
  };
  for (int member = 0; member < team.size(); ++member) {
    Buffers buffers;
    if (member == team.me()) {
      buffers = mine;
    } else {
      const share::Arrival& arrival = team.arrival(member);
      const Needs needs = needs_of(team, shape, member);
      const int local_rank = team.local_rank(member);
      if (needs.send) buffers.send = reach(local_rank, arrival.send);
      if (needs.receive) buffers.receive = reach(local_rank, arrival.receive);
      if ((needs.send && buffers.send == nullptr) || (needs.receive && buffers.receive == nullptr)) return std::nullopt;
      // Where this rank's piece belongs.
      if (needs.receive && uneven(shape.collective))
        buffers.receive += team.passages(member)[static_cast<std::size_t>(team.me())].place;
    }
    reached.all.push_back(buffers);
  }
  return reached;
}

void show_passages(team::Team& team, const Pieces& pieces) {
  const auto passages = team.own_passages();
  for (std::size_t p = 0; p < passages.size(); ++p)
    passages[p] = {pieces.send[p].bytes, pieces.receive[p].bytes, pieces.receive[p].offset};
}

// The same on all members, once all have shown their passages.
std::size_t largest_passage(const team::Team& team) {
  std::uint64_t largest = 0;
  for (int member = 0; member < team.size(); ++member)
    for (const share::Passage& passage : team.passages(member)) largest = std::max(largest, passage.sends);
  return largest;
}

// Forgets what was reached once a mapping was closed, whichever it was.
void forget_closed(team::Team::Connection& connection) {
  const std::uint64_t closings = connection.home->exposure().closings();
  if (connection.closings != closings) connection.reached.fill(0);
  connection.closings = closings;
}

// The GPU may fail, or have failed, by what the application runs on it: then nothing of ours ends. And another member may have, or be gone: then
// kernels here wait for its in vain. Costs a question to the system for each member: once a second.
void look_at_kernels(const team::Team& team) {
  team.connection().throw_if_failed();
  if (team.culprit() || team.dead()) team.stop_waiting();
}
engine::Watch watching_kernels(const engine::Watch& watch, const team::Team& team) {
  engine::Watch mine = watch;
  mine.check = [](const void* checked) { look_at_kernels(*static_cast<const team::Team*>(checked)); };
  mine.checked = &team;
  return mine;
}

engine::Task<> reached(engine::Completion end, const team::Team& team) {
  while (!end.done()) {
    co_await end.or_after(look_every);
    if (!end.done()) look_at_kernels(team);
  }
}

// However a call ends: then others may leave, and use anew what it reads and writes of theirs. Of one that fails nothing is left on the GPU by then,
// or all know that something is (Team::clear_away()).
struct Finish {
  team::Team& team;
  ~Finish() { team.finish(); }
};

// A blocking call, from its begin to its end.
class Sojourn {
 public:
  explicit Sojourn(team::Lingerer& lingerer) noexcept : lingerer_(lingerer) { lingerer_.begin(); }
  ~Sojourn() { lingerer_.end(); }
  Sojourn(const Sojourn&) = delete;
  Sojourn& operator=(const Sojourn&) = delete;

 private:
  team::Lingerer& lingerer_;
};

}  // namespace

bool worth_exposing(const Shape& shape, int members, std::size_t least) noexcept {
  return volume(shape, members) >= least;
}

bool worth_showing(const Shape& shape, int members, std::size_t bytes) noexcept {
  // A rank that gets next to nothing has all go through the windows, rather than fill up what a rank can show.
  constexpr std::size_t least = std::size_t{64} << 10;
  return shape.bytes == unknown_bytes ? bytes >= least : worth_exposing(shape, members);
}

void Blocking::compare(team::Team& team, const Claim& claim, const Pieces* pieces, const engine::Watch& watch) const {
  if (!team.queued().done()) engine_.wait(team.queued(), watch);
  share::Arrival& own = team.own_arrival();
  own.send = own.receive = {};
  own.claim = encode(claim, pieces != nullptr);
  if (pieces != nullptr) show_passages(team, *pieces);
  team.arrive(watch);
  const Finish finish{team};
  if (!team.excused()) compare_claims(team);
}

void Blocking::excuse(team::Team& team, share::Excuse why, const engine::Watch& watch) const {
  if (!team.queued().done()) engine_.wait(team.queued(), watch);
  team.arrive(watch, why);
  const Finish finish{team};
  // Who has failed has an error of its own to tell.
  if (why != share::Excuse::failed) static_cast<void>(team.excused());
}

// One rank's side of a direct call, from its arrival to the end. Who waits in between is its user's affair.
class Blocking::Participation {
 public:
  Participation(const Blocking& blocking, team::Team& team, const Shape& shape, const Side& mine)
      : blocking_(blocking),
        team_(team),
        connection_(team.connection()),
        shape_(shape),
        mine_(mine),
        view_(team.view()) {}
  Participation(const Participation&) = delete;
  Participation& operator=(const Participation&) = delete;

  /// Before this rank arrives.
  void show() {
    forget_closed(connection_);
    share::Arrival& own = team_.own_arrival();
    own.send = mine_.send;
    own.receive = mine_.receive;
    own.facts = connection_.reached;
    large_ = blocking_.wants_large_windows(view_, shape_);
    own.large_windows = large_ && connection_.home->show_large_window() && team_.large_windows_mapped() ? 1 : 0;
    if (blocking_.checks_) own.claim = encode(mine_.claim, mine_.pieces.has_value());
    if (mine_.pieces) show_passages(team_, *mine_.pieces);
  }

  /// Once all have arrived: fails on all, or on none.
  void compare() const {
    if (blocking_.checks_) compare_claims(team_);
  }
  /// After it.
  const Algorithm& choose() {
    or_fall([&] { prepare(); });
    return *algorithm_;
  }
  [[nodiscard]] const Algorithm& algorithm() const noexcept { return *algorithm_; }
  [[nodiscard]] const Call& call() const noexcept { return *call_; }

  /// What keeps this rank from its part keeps the others' kernels waiting in vain.
  template <class Part>
  void or_fall(Part part) {
    try {
      part();
    } catch (...) {
      fall();
      throw;
    }
  }
  void fall() noexcept {
    team_.fail(team_.me());
    team_.lose();
  }

  /// Of an algorithm that the GPU drives: true once start() may be called, at once. It never waits.
  [[nodiscard]] bool may_start() const { return team_.may_start(plan_->blocks()); }
  /// What is enqueued is complete when this is done; then comes check().
  /// `waits`: this thread does, until it is over.
  [[nodiscard]] engine::Completion start(bool waits) {
    const auto on_gpu = connection_.words.device_address();
    Report report;
    report.done = reinterpret_cast<std::uint64_t*>(on_gpu);
    report.value = ++connection_.launches;
    report.failed = report.done + team::Team::Connection::failed_at / sizeof *report.done;
    report.limit_ns = static_cast<std::uint64_t>(blocking_.limit_seconds() * 1e9);
    report.abort = reinterpret_cast<const std::uint32_t*>(on_gpu + team::Team::Connection::abort_at);
    const auto over = engine::Completion::of(*reinterpret_cast<std::atomic<std::uint64_t>*>(words()), report.value);
    // Not where more is enqueued, which a kernel that stays would hold up.
    const bool may_stay = waits && !mine_.lifts && !mine_.lower && volume(shape_, team_.size()) <= most_to_stay_for;
    team::Lingerer& lingerer = *connection_.lingerer;
    if (may_stay && plan_->ring(lingerer, report)) {
      blocking_.rung_.fetch_add(1, std::memory_order_relaxed);
      team_.started();
      return over;
    }
    const gpu::ContextScope scope(connection_.home->driver(), connection_.home->context());
    if (!(may_stay && lingerer.worth() && plan_->linger(lingerer, *connection_.stream, report)))
      plan_->start(connection_.queue(), report);
    team_.started();
    if (mine_.lower) {
      try {
        mine_.lower(connection_.queue());
        return connection_.all_enqueued();
      } catch (...) {
        failure_ = std::current_exception();  // the call's kernels run all the same
      }
    }
    return over;
  }
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
    constexpr std::size_t failed = team::Team::Connection::failed_at / sizeof(std::uint64_t);
    const std::uint64_t missing = std::atomic_ref<std::uint64_t>(words()[failed]).load(std::memory_order_acquire);
    if (missing == 0) return;
    const auto dead = team_.dead();  // who is missed may have waited for that one itself
    const auto culprit = dead ? dead : team_.culprit();
    team_.fail(culprit.value_or(static_cast<int>(missing) - 1));
    team_.lose();
    if (dead)
      throw base::Error(base::ErrorClass::other, "the process of rank {} of the communicator ended in this call",
                        team_.rank(*dead));
    if (culprit)
      throw base::Error(base::ErrorClass::other, "rank {} of the communicator failed in this call",
                        team_.rank(*culprit));
    throw base::Error(
        base::ErrorClass::other,
        "rank {} of the communicator did not take part within {:.0f} s after it had arrived; its process or GPU "
        "is gone or busy",
        team_.rank(static_cast<int>(missing) - 1), blocking_.limit_seconds());
  }

  /// After it: maps what the next call with these buffers can use. Whatever comes of that, this call has ended well.
  void remember() const noexcept {
    try {
      if (worth_ && !facts_.exposed && exposable(team_, shape_) &&
          reach_all(team_, shape_, mine_.buffers, share::Exposure::Closing::as_set)) {
        forget_closed(connection_);
        connection_.reached[connection_.next_reached++ % connection_.reached.size()] = fingerprint(team_, shape_);
      }
      // All have shown theirs that can, before they arrived.
      if (large_) team_.map_large_windows();
    } catch (const std::exception& error) {
      base::log(base::Topic::debug, "the next call goes the way of this one: {}", error.what());
    }
  }

 private:
  void prepare() {
    if (shape_.bytes == unknown_bytes) shape_.bytes = largest_passage(team_);
    facts_ = blocking_.facts_in(view_);
    worth_ = facts_.spinning && worth_exposing(shape_, team_.size());
    facts_.exposed = worth_ && all_exposed(team_, shape_);
    facts_.large_windows = large_ && all_have_large_windows(team_);
    if (facts_.exposed) {
      auto reached = reach_all(team_, shape_, mine_.buffers, share::Exposure::Closing::at_once);
      if (!reached) throw base::Error(base::ErrorClass::intern, "a mapping that was there is gone");
      reached_ = *std::move(reached);
    }
    algorithm_ = blocking_.choice_.choose(shape_, facts_);
    if (algorithm_ == nullptr)
      throw base::Error(base::ErrorClass::intern, "no algorithm for {} of {} bytes", name_of(shape_.collective),
                        shape_.bytes);
    call_.emplace(Call{shape_, mine_.buffers, view_, reached_.all, mine_.pieces ? &*mine_.pieces : nullptr});
    if (algorithm_->drive() == Drive::gpu) plan_ = algorithm_->prepare(*call_);
  }

  // The kernels': `done` grows with each call, `failed` is 0 unless something went wrong.
  [[nodiscard]] std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(connection_.words.data()); }

  const Blocking& blocking_;
  team::Team& team_;
  team::Team::Connection& connection_;
  Shape shape_;  // what is not known to each rank, once all have arrived
  const Side& mine_;
  const team::TeamView view_;
  TeamFacts facts_;
  bool worth_ = false, large_ = false;
  Reached reached_;
  const Algorithm* algorithm_ = nullptr;
  std::optional<Call> call_;
  std::unique_ptr<Plan> plan_;
  std::exception_ptr failure_;  // of what was to be enqueued behind it
};

const Algorithm* Blocking::run(team::Team& team, const Shape& shape, const Side& mine,
                               const engine::Watch& watch) const {
  if (!team.queued().done()) engine_.wait(team.queued(), watch);
  if (team.withdrawn()) {
    excuse(team, share::Excuse::withdrawn, watch);
    return nullptr;
  }
  const Sojourn sojourn(*team.connection().lingerer);
  Participation participation(*this, team, shape, mine);
  try {
    participation.show();
  } catch (...) {
    excuse(team, share::Excuse::failed, watch);
    throw;
  }
  team.arrive(watch);
  const Finish finish{team};
  if (team.excused()) return nullptr;
  participation.compare();
  const Algorithm& algorithm = participation.choose();
  if (algorithm.drive() == Drive::host) {
    drive(algorithm, participation.call(), mine, team, nullptr, watch);
  } else {
    const trace::Span span(engine_.tracer(), trace::Kind::kernel, algorithm.name, participation.call().shape.bytes);
    try {
      const auto may_start = [&] { return participation.may_start(); };
      if (!engine_.soon(may_start)) engine_.until(may_start, watch);
      engine_.wait(participation.start(true), watching_kernels(watch, team));
    } catch (...) {
      participation.fall();
      try {
        engine_.run(team.clear_away(), watch);
      } catch (const std::exception& error) {
        base::log(base::Topic::debug, "behind a call that has failed: {}", error.what());
      }
      throw;
    }
    participation.check();
  }
  participation.remember();
  return &algorithm;
}

bool Blocking::wants_large_windows(const team::TeamView& team, const Shape& shape) const {
  if (!combines(shape.collective) || !worth_exposing(shape, team.size())) return false;
  TeamFacts facts = facts_in(team);
  if (!facts.spinning) return false;
  facts.exposed = true;
  const Algorithm* const without = choice_.choose(shape, facts);
  facts.large_windows = true;
  return choice_.choose(shape, facts) != without;
}

bool Blocking::takes(const team::Team& team, const Shape& shape) const {
  return choice_.choose(shape, facts_in(team.view())) != nullptr;
}

TeamFacts Blocking::facts_in(const team::TeamView& team) const {
  TeamFacts facts = facts_of(team);
  facts.deterministic = choice_.deterministic();
  return facts;
}

// All have arrived, so peers do their part soon, unless the application's own work fills their GPU.
double Blocking::limit_seconds() const noexcept { return limit_of_waits(watchdog_seconds_); }

namespace {

std::string whom(const team::Team& team, int member) {
  if (member == other_nodes)
    return "ranks of other nodes; if some pass host memory to this call, others GPU memory, set CROSSLANE_MIXED=1";
  return member < 0 ? "the GPU" : fmt::format("missing rank {}", team.rank(member));
}

// What the watchdog says of a task: whom it waits for.
struct Waiting {
  const engine::Watch& watch;
  const team::Team& team;
  std::atomic<int> member{the_gpu};

  static std::string name(const void* context) {
    const engine::Watch& watch = static_cast<const Waiting*>(context)->watch;
    return watch.name(watch.context);
  }
  static std::string details(const void* context) {
    const auto& waiting = *static_cast<const Waiting*>(context);
    return whom(waiting.team, waiting.member.load(std::memory_order_relaxed));
  }
};

}  // namespace

DrivenCall Blocking::driven(const Call& call, const Side& mine, team::Team& team, std::atomic<int>& waits_for) const {
  return {call, team, waits_for, limit_seconds(), choice_.deterministic(), mine.lifts};
}

void Blocking::drive(const Algorithm& algorithm, const Call& call, const Side& mine, team::Team& team,
                     const Beyond* beyond, const engine::Watch& watch) const {
  const trace::Span span(engine_.tracer(), trace::Kind::kernel, algorithm.name, call.shape.bytes);
  Waiting waiting{watch, team};
  engine::Watch watching = watch;
  watching.context = &waiting;
  if (watching.name != nullptr) watching.name = Waiting::name;
  watching.details = Waiting::details;
  DrivenCall task = driven(call, mine, team, waiting.member);
  task.beyond = beyond;
  // Ranks of other nodes may come late, however late, and so may what members have to wait for.
  if (beyond != nullptr) task.limit_s = for_ever;
  engine_.run(algorithm.run(task), watching);
}

void Blocking::run(const Beyond& beyond, const Algorithm& algorithm, const Shape& shape, const Side& mine,
                   const engine::Watch& watch) const {
  team::Team& team = beyond.span.team();
  share::Arrival& own = team.own_arrival();
  own.send = own.receive = {};
  try {
    team.arrive(watch);
  } catch (...) {
    try {
      if (team.dead()) engine_.run(do_without(beyond), watch);
    } catch (const std::exception& error) {
      base::log(base::Topic::debug, "ranks of other nodes may not know that this call has failed: {}", error.what());
    }
    throw;
  }
  const Finish finish{team};
  const team::TeamView view = team.view();
  Shape within = shape;
  within.root = beyond.span.member_of(beyond.leader_of(beyond.span.node()));
  const Call call{within, mine.buffers, view, {}, nullptr};
  drive(algorithm, call, mine, team, &beyond, watch);
}

std::string Started::details() const {
  const std::uint64_t direct = number.load(std::memory_order_acquire);
  if (direct == 0) return "earlier calls on the communicator";
  std::string missing;
  for (int member = 0; member < team->size(); ++member)
    if (!team->has_arrived(member, direct))
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", team->rank(member));
  if (!missing.empty()) return "missing ranks " + missing;
  return whom(*team, waits_for.load(std::memory_order_relaxed));
}

void Blocking::start(const std::shared_ptr<Started>& call, engine::HelperThread* helper) const {
  auto task = carry_out(call, call->team->queued(), pass(*call));
  call->over = helper != nullptr ? helper->spawn(std::move(task)) : engine_.spawn(std::move(task));
  call->team->queue(call->over);
}

// `passing` is there before anything has begun: by the time that it has its turn there may be no memory for it, and the others wait.
engine::Task<> Blocking::carry_out(std::shared_ptr<Started> call, engine::Completion before,
                                   engine::Task<> passing) const {
  try {
    co_await before;
    co_await std::move(passing);
  } catch (...) {
    call->error = std::current_exception();
  }
}

engine::Task<> Blocking::pass(Started& call) const {
  team::Team& team = *call.team;
  Participation participation(*this, team, call.shape, call.mine);
  std::exception_ptr failure;
  if (call.excuse == share::Excuse::none && team.withdrawn()) call.excuse = share::Excuse::withdrawn;
  try {
    if (call.excuse == share::Excuse::none) participation.show();
  } catch (...) {
    failure = std::current_exception();
    call.excuse = share::Excuse::failed;
  }
  team.announce(call.excuse);
  call.number.store(team.direct_call(), std::memory_order_release);
  const Finish finish{team};
  for (int member = 0; member < team.size(); ++member) {
    const engine::Completion arrival = team.arrival_of(member);
    while (!arrival.done()) {
      co_await arrival.or_after(look_every);
      if (!arrival.done()) team.check_all_come();
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (team.excused())
    throw base::Error(
        base::ErrorClass::other,
        "a rank of the communicator has ended the CUDA context that it took part with, or an earlier call has failed, "
        "so that the GPUs cannot carry out what others have started; started again, it goes through the host");
  if (call.excuse != share::Excuse::none) co_return;
  if (call.compares_only) {
    compare_claims(team);
    throw base::Error(base::ErrorClass::intern, "ranks differ in what they pass to one collective");
  }
  participation.compare();
  // It may have, since the call was started.
  participation.or_fall([&] { team.connection().throw_if_ended(); });
  call.algorithm = &participation.choose();
  const base::Time begin = base::now();
  co_await run(participation, call);
  if (engine_.tracer() != nullptr)
    engine_.tracer()->record(trace::Kind::kernel, call.algorithm->name, begin, base::now(),
                             participation.call().shape.bytes);
  participation.remember();
}

engine::Task<> Blocking::run(Participation& participation, Started& call) const {
  if (participation.algorithm().drive() == Drive::host) {
    const DrivenCall task = driven(participation.call(), call.mine, *call.team, call.waits_for);
    co_await participation.algorithm().run(task);
  } else {
    constexpr std::chrono::microseconds soon{2};
    std::exception_ptr failure;
    try {
      while (!participation.may_start()) co_await engine::Completion::after(soon);
      call.team->connection().throw_if_ended();
      const engine::Completion over = participation.start(false);
      co_await reached(over, *call.team);
    } catch (...) {
      participation.fall();
      failure = std::current_exception();
    }
    if (failure) {
      co_await call.team->clear_away();
      std::rethrow_exception(failure);
    }
    participation.check();
  }
}

}  // namespace crosslane::collective
