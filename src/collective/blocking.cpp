// See blocking.h. How buffers come to be mapped without a rank waiting for another's mapping: a rank tells with each arrival which
// of the last sets of buffers it has reached; a set that all have reached is used without copies, another one goes through
// the windows once, and is reached after the call.
#include "collective/blocking.h"

#include "base/error.h"
#include "collective/frame.h"
#include "gpu/context.h"

#include <algorithm>
#include <atomic>
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

// All members' buffers as mapped here; what the call does not need of them is null. Nothing where one cannot be mapped.
std::optional<std::vector<Buffers>> reach_all(team::Team& team, const Shape& shape, const Buffers& mine) {
  share::Exposure& exposure = team.connection().home->exposure();
  std::vector<Buffers> all;
  for (int member = 0; member < team.size(); ++member) {
    Buffers buffers;
    if (member == team.me()) {
      buffers = mine;
    } else {
      const share::Arrival& arrival = team.arrival(member);
      const Needs needs = needs_of(team, shape, member);
      const int local_rank = team.local_rank(member);
      const auto send = needs.send ? exposure.reach(local_rank, arrival.send) : std::optional<std::byte*>(nullptr);
      const auto receive =
          needs.receive ? exposure.reach(local_rank, arrival.receive) : std::optional<std::byte*>(nullptr);
      if (!send || !receive) return std::nullopt;
      buffers = {*send, *receive};
      // Where this rank's piece belongs.
      if (needs.receive && uneven(shape.collective))
        buffers.receive += team.passages(member)[static_cast<std::size_t>(team.me())].place;
    }
    all.push_back(buffers);
  }
  return all;
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

// However a call ends, this rank reads no window of others any more.
struct Finish {
  team::Team& team;
  ~Finish() { team.finish(); }
};

}  // namespace

bool worth_exposing(const Shape& shape, int members) noexcept {
  constexpr std::size_t least = std::size_t{256} << 10;
  const bool blocks = sends_blocks(shape.collective) || receives_blocks(shape.collective);
  return shape.bytes * static_cast<std::size_t>(blocks ? members : 1) >= least;
}

bool worth_showing(const Shape& shape, int members, std::size_t bytes) noexcept {
  // A rank that gets next to nothing has all go through the windows, rather than fill up what a rank can show.
  constexpr std::size_t least = std::size_t{64} << 10;
  return shape.bytes == unknown_bytes ? bytes >= least : worth_exposing(shape, members);
}

void Blocking::compare(team::Team& team, const Claim& claim, const engine::Watch& watch) const {
  share::Arrival& own = team.own_arrival();
  own.send = own.receive = {};
  own.claim = encode(claim);
  team.arrive(watch);
  const Finish finish{team};
  compare_claims(team);
}

const Algorithm& Blocking::run(team::Team& team, const Shape& known, const Side& mine,
                               const engine::Watch& watch) const {
  auto& connection = team.connection();
  forget_closed(connection);
  share::Arrival& own = team.own_arrival();
  own.send = mine.send;
  own.receive = mine.receive;
  own.facts = connection.reached;
  const bool large = wants_large_windows(team, known);
  own.large_windows = large && connection.home->show_large_window() && team.large_windows_mapped() ? 1 : 0;
  if (checks_) own.claim = encode(mine.claim);
  if (mine.pieces) show_passages(team, *mine.pieces);
  team.arrive(watch);
  const Finish finish{team};
  if (checks_) compare_claims(team);
  Shape shape = known;
  if (shape.bytes == unknown_bytes) shape.bytes = largest_passage(team);

  const team::TeamView view = team.view();
  TeamFacts facts = facts_in(view);
  const bool worth = facts.spinning && worth_exposing(shape, team.size());
  facts.exposed = worth && all_exposed(team, shape);
  facts.large_windows = large && all_have_large_windows(team);
  std::vector<Buffers> all;
  if (facts.exposed) {
    auto reached = reach_all(team, shape, mine.buffers);
    if (!reached) throw base::Error(base::ErrorClass::intern, "a mapping that was there is gone");
    all = *std::move(reached);
  }
  const Algorithm* const algorithm = choice_.choose(shape, facts);
  if (algorithm == nullptr)
    throw base::Error(base::ErrorClass::intern, "no algorithm for {} of {} bytes", name_of(shape.collective),
                      shape.bytes);
  const Call call{shape, mine.buffers, view, all, mine.pieces ? &*mine.pieces : nullptr};
  if (algorithm->drive() == Drive::host)
    drive(*algorithm, team, call, watch);
  else
    start(*algorithm, team, call, watch);
  if (worth && !facts.exposed && exposable(team, shape) && reach_all(team, shape, mine.buffers)) {
    forget_closed(connection);
    connection.reached[connection.next_reached++ % connection.reached.size()] = fingerprint(team, shape);
  }
  // All have shown theirs that can, before they arrived.
  if (large) team.map_large_windows();
  return *algorithm;
}

bool Blocking::wants_large_windows(const team::Team& team, const Shape& shape) const {
  TeamFacts facts = facts_in(team.view());
  if (!facts.spinning || !combines(shape.collective) || !worth_exposing(shape, team.size())) return false;
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
double Blocking::limit_seconds() const noexcept {
  constexpr double patience = 10;
  return watchdog_seconds_ > 0 ? watchdog_seconds_ * patience : 1e9;
}

void Blocking::start(const Algorithm& algorithm, team::Team& team, const Call& call, const engine::Watch& watch) const {
  auto& connection = team.connection();
  const auto plan = algorithm.prepare(call);
  // The kernels' words: `done` grows with each call, `failed` is 0 unless something went wrong.
  auto* const words = reinterpret_cast<std::uint64_t*>(connection.words.data());
  const auto on_gpu = connection.words.device_address();
  constexpr std::size_t failed = share::line_bytes / sizeof(std::uint64_t);
  Report report;
  report.done = reinterpret_cast<std::uint64_t*>(on_gpu);
  report.value = ++connection.launches;
  report.failed = report.done + failed;
  report.limit_ns = static_cast<std::uint64_t>(limit_seconds() * 1e9);
  const trace::Span span(engine_.tracer(), trace::Kind::kernel, algorithm.name, call.shape.bytes);
  const auto may_start = [&] { return team.may_start(plan->blocks()); };
  if (!may_start()) engine_.until(may_start, watch);
  {
    const gpu::ContextScope scope(connection.home->driver(), connection.home->context());
    plan->start(*connection.stream, report);
  }
  team.started();
  const std::atomic<std::uint64_t>& done = *reinterpret_cast<std::atomic<std::uint64_t>*>(words);
  engine_.wait(engine::Completion::of(done, report.value), watch);
  const std::uint64_t missing = std::atomic_ref<std::uint64_t>(words[failed]).load(std::memory_order_acquire);
  if (missing != 0) {
    throw base::Error(
        base::ErrorClass::other,
        "rank {} of the communicator did not take part within {:.0f} s after it had arrived; its process or GPU "
        "is gone or busy",
        missing - 1, limit_seconds());
  }
}

namespace {

// What the watchdog says of a task: whom it waits for.
struct Waiting {
  const engine::Watch& watch;
  std::atomic<int> member{-1};

  static std::string name(const void* context) {
    const auto& [watch, member] = *static_cast<const Waiting*>(context);
    return watch.name(watch.context);
  }
  static std::string details(const void* context) {
    const int member = static_cast<const Waiting*>(context)->member.load(std::memory_order_relaxed);
    return member < 0 ? "the GPU" : fmt::format("missing rank {}", member);
  }
};

}  // namespace

void Blocking::drive(const Algorithm& algorithm, team::Team& team, const Call& call, const engine::Watch& watch) const {
  const trace::Span span(engine_.tracer(), trace::Kind::kernel, algorithm.name, call.shape.bytes);
  Waiting waiting{watch};
  engine::Watch mine = watch;
  mine.context = &waiting;
  if (mine.name != nullptr) mine.name = Waiting::name;
  mine.details = Waiting::details;
  const DrivenCall driven{call, team, waiting.member, limit_seconds(), choice_.deterministic()};
  engine_.wait(engine_.spawn(algorithm.run(driven)), mine);
}

}  // namespace crosslane::collective
