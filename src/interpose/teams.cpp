// See teams.h.
#include "interpose/teams.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace crosslane::interpose {
namespace {

// For the helper thread, first of all.
engine::Task<> ignore_captures(const gpu::Driver& driver) {
  gpu::ignore_captures_of_other_threads(driver);
  co_return;
}

// A communicator whose facts cannot be learnt goes to MPI, on every rank: the failure is one of MPI's own, which do not meet some ranks only.
template <class Body>
void logging_unknown(const Body& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a communicator is not known: {}", error.what());
  }
}

}  // namespace

Teams::Teams(Process& process, team::World& world, team::Communicators& communicators, const collective::Choice& choice)
    : process_(process),
      world_(world),
      communicators_(communicators),
      choice_(choice),
      blocking_(choice, process.engine(), process.settings()),
      enqueued_(choice, process.settings().watchdog_s),
      calls_(collective::catalogue().size()) {}

Teams::~Teams() {
  helper_.reset();  // what it still has waits for ranks that will not come
  if (auto* const peers = process_.peers()) peers->leave();
  try {
    const auto& below = process_.library().below();
    for (const auto& question : questions_)
      process_.engine().until([&] { return question->over(below); }, {.call = "a question to the MPI"});
  } catch (const std::exception& error) {
    base::log(base::Topic::warning, "leaving: {}", error.what());
  }
  // All say that they leave before any waits for another: ranks need not agree on an order of communicators.
  for (const auto& prepared : prepared_) prepared->announce();
  for (const auto& prepared : prepared_) prepared->leave();
  for (const auto& each : living_)
    if (const auto team = each.lock()) team->leave();
}

const std::shared_ptr<team::Team>& Teams::of(MPI_Comm communicator) {
  team::CommunicatorFacts& facts = communicators_.of(communicator);
  if (facts.team_known.load(std::memory_order_acquire)) return facts.team;
  const std::lock_guard lock(mutex_);
  if (facts.team_known.load(std::memory_order_relaxed)) return facts.team;
  std::optional<std::vector<int>> local_ranks;
  if (!facts.inter && facts.key && facts.world_ranks.size() > 1) local_ranks = world_.local_ranks(facts.world_ranks);
  if (local_ranks) {
    const int me = static_cast<int>(std::ranges::find(facts.world_ranks, world_.rank()) - facts.world_ranks.begin());
    facts.neighbourhood = team::Neighbourhood::of(process_.library().below(), communicator);
    facts.team = make_team(*facts.key, *std::move(local_ranks), me, choice_.drives(), facts.neighbourhood.get());
  } else {
    facts.span = make_span(facts);
  }
  facts.team_known.store(true, std::memory_order_release);
  return facts.team;
}

const std::shared_ptr<team::Span>& Teams::span_of(MPI_Comm communicator) {
  static_cast<void>(of(communicator));
  return communicators_.of(communicator).span;
}

std::shared_ptr<team::Team> Teams::make_team(const share::TeamKey& key, std::vector<int> local_ranks, int me,
                                             bool drives, const team::Neighbourhood* topology, std::size_t part_bytes) {
  auto made =
      std::make_shared<team::Team>(world_.directory(), world_.board(), process_.engine(), key, std::move(local_ranks),
                                   me, drives, process_.settings().linger_us, part_bytes);
  if (topology != nullptr && !topology->single_edges()) made->has_parallel_edges();
  std::erase_if(living_, [](const auto& each) { return each.expired(); });
  living_.push_back(made);
  return made;
}

std::shared_ptr<team::Span> Teams::make_span(const team::CommunicatorFacts& facts) {
  if (facts.inter || !facts.key || facts.world_ranks.size() < 2 || !choice_.spans_nodes()) return nullptr;
  std::map<int, std::size_t> places;
  std::vector<std::vector<int>> nodes;
  std::vector<int> on_my_node;  // of the world
  int me = -1;
  for (std::size_t rank = 0; rank < facts.world_ranks.size(); ++rank) {
    const int world_rank = facts.world_ranks[rank];
    if (!world_.may_have_gpus(world_rank)) return nullptr;
    if (world_rank == world_.rank()) me = static_cast<int>(rank);
    const auto place = places.try_emplace(world_.nodes().node_of(world_rank), nodes.size()).first->second;
    if (place == nodes.size()) nodes.emplace_back();
    nodes[place].push_back(static_cast<int>(rank));
    if (world_.on_my_node(world_rank)) on_my_node.push_back(world_rank);
  }
  const std::vector<int> mine = nodes[places.at(world_.nodes().node_of(world_.rank()))];
  auto team_of_node = [this, key = *facts.key, local_ranks = world_.local_ranks(on_my_node).value(), mine, me] {
    const std::lock_guard lock(mutex_);
    auto team = make_team(key, local_ranks, static_cast<int>(std::ranges::find(mine, me) - mine.begin()), true);
    team->named(mine);
    return team;
  };
  return std::make_shared<team::Span>(std::move(nodes), facts.world_ranks, me, std::move(team_of_node), span_tags_);
}

std::shared_ptr<team::Team> Teams::for_persistent(MPI_Comm communicator) {
  // Memory for each, so not much.
  constexpr std::size_t part_bytes = std::size_t{256} << 10;
  const auto& whole = *of(communicator);
  team::CommunicatorFacts& facts = communicators_.of(communicator);
  const std::uint64_t number = ++facts.persistent;
  const std::lock_guard lock(mutex_);
  return make_team(team::persistent_key(*facts.key, number), whole.local_ranks(), whole.me(), choice_.drives(),
                   facts.neighbourhood.get(), part_bytes);
}

team::Prepared& Teams::prepared(team::CommunicatorFacts& facts, std::vector<int> local_ranks, int me) {
  give_back_freed();
  const std::lock_guard lock(mutex_);
  if (facts.prepared == nullptr) {
    facts.prepared = std::make_shared<team::Prepared>(process_.engine(), std::move(local_ranks), me);
    prepared_.push_back(facts.prepared);
  }
  return *facts.prepared;
}

void Teams::give_back_freed() noexcept {
  team::Home* home = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(prepared_, [](const auto& each) {
      if (each.use_count() != 1) return false;
      std::atomic_thread_fence(std::memory_order_acquire);  // the thread that has freed it may have ended it
      return each->settle();
    });
    home = home_.get();
  }
  if (home != nullptr) home->let_go();  // what ends may wait for the GPU, for which others need the lock
}

void Teams::created(MPI_Comm parent, MPI_Comm child) noexcept {
  logging_unknown([&] {
    give_back_freed();
    team::CommunicatorFacts& facts = communicators_.of(parent);
    name(facts, ++facts.created, child);
  });
}

void Teams::name(const team::CommunicatorFacts& parent, std::uint64_t number, MPI_Comm child) noexcept {
  if (child == process_.library().handles().comm_null) return;
  logging_unknown([&] { communicators_.of(child).key = team::child_key(parent, number, communicators_.of(child)); });
}

void Teams::created_apart(MPI_Comm child) noexcept {
  const auto& handles = process_.library().handles();
  if (child == handles.comm_null) return;
  logging_unknown([&] {
    team::CommunicatorFacts& facts = communicators_.of(child);
    if (!may_take(facts)) return;
    share::TeamKey key{};
    if (facts.world_ranks.front() == world_.rank()) key = team::told_key(world_.rank(), ++told_);
    const auto& below = process_.library().below();
    MPI_Request request{};
    team::check(below, below.Ibcast(&key, sizeof key, handles.byte, 0, child, &request), "MPI_Ibcast");
    const auto told = engine::Completion::of(&request);
    process_.engine().wait(told, {.call = "a communicator's name"});
    team::check(below, told.code(), "MPI_Ibcast");
    facts.key = key;
  });
}

bool Teams::may_take(const team::CommunicatorFacts& facts) const {
  if (facts.inter || facts.world_ranks.size() < 2) return false;
  const auto on_my_node = [&](int rank) { return world_.on_my_node(rank); };
  const auto may_have_gpus = [&](int rank) { return world_.may_have_gpus(rank); };
  return std::ranges::all_of(facts.world_ranks, on_my_node) ||
         (choice_.spans_nodes() && std::ranges::all_of(facts.world_ranks, may_have_gpus));
}

void Teams::keep(std::shared_ptr<team::Question> question) {
  std::vector<std::shared_ptr<team::Question>> open;
  {
    const std::lock_guard lock(mutex_);
    if (question != nullptr) questions_.push_back(std::move(question));
    open = questions_;
  }
  // Nobody else may look at those whose calls are not made again; and what MPI does with the last of a communicator calls us back.
  for (const auto& each : open) static_cast<void>(each->over(process_.library().below()));
  const std::lock_guard lock(mutex_);
  std::erase_if(questions_, [](const auto& each) { return each->over(); });
}

void Teams::keep(std::list<std::shared_ptr<collective::Started>> call) noexcept {
  std::list<std::shared_ptr<collective::Started>> over;  // ends outside of the lock
  const std::lock_guard lock(mutex_);
  for (auto next = in_vain_.begin(); next != in_vain_.end();) {
    const auto each = next++;
    if ((*each)->over.done()) over.splice(over.end(), in_vain_, each);
  }
  in_vain_.splice(in_vain_.end(), call);
}

engine::HelperThread& Teams::helper() {
  const std::lock_guard lock(mutex_);
  if (helper_ == nullptr) {
    helper_ = std::make_unique<engine::HelperThread>();
    helper_->spawn(ignore_captures(process_.gpu().driver()));
  }
  return *helper_;
}

// Others may wait for what it is to do.
engine::HelperThread* Teams::helper_if_any() noexcept {
  try {
    return &helper();
  } catch (const std::exception& error) {
    base::log(helper_refused_.exchange(true, std::memory_order_relaxed) ? base::Topic::debug : base::Topic::warning,
              "nonblocking collectives go on only while this program is in MPI's calls: {}", error.what());
    return nullptr;
  }
}

void Teams::count(const collective::Algorithm& row) noexcept {
  const auto index = static_cast<std::size_t>(&row - collective::catalogue().data());
  calls_[index].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Teams::calls(std::string_view collective, std::string_view algorithm) const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t index = 0; index < calls_.size(); ++index) {
    const collective::Algorithm& row = collective::catalogue()[index];
    if (collective::name_of(row.collective) == collective && (algorithm.empty() || row.name == algorithm))
      sum += calls_[index].load(std::memory_order_relaxed);
  }
  return sum;
}

team::Home* Teams::standing_home() noexcept {
  auto* const known = home();
  if (known == nullptr || known->stands()) return known;
  leave_home();
  return nullptr;
}

void Teams::leave_home() noexcept {
  std::vector<std::shared_ptr<team::Team>> teams;  // which end without the mutex, where this has the last hold of one
  {
    const std::lock_guard lock(mutex_);
    if (homeless_.exchange(true)) return;
    ended_untold_.store(true, std::memory_order_relaxed);
    // It stays in memory: what was prepared with it refers to it, and asks nothing of its context.
    home_seen_.store(nullptr, std::memory_order_release);
    for (const auto& each : living_)
      if (auto team = each.lock()) teams.push_back(std::move(team));
  }
  for (const auto& team : teams) team->withdraw();
  if (auto* const peers = process_.transfers().peers()) peers->leave_for_good();
}

void Teams::tell_ended() noexcept {
  if (!ended_untold_.load(std::memory_order_relaxed) || !ended_untold_.exchange(false)) return;
  base::log(
      base::Topic::warning,
      "the application has ended the CUDA context of GPU {} whose memory it passed first: its collectives and messages "
      "on GPU memory go through the host from now on",
      home_->device());
}

void Teams::tell_elsewhere(const team::Home& home, int device, const char* call) noexcept {
  const unsigned calls = calls_elsewhere_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (calls != 1 && calls != calls_worth_telling) return;
  base::log(
      calls == 1 ? base::Topic::info : base::Topic::warning,
      "{}: a buffer is on GPU {}{}, but this rank takes part with GPU {}, whose memory it passed first: messages "
      "and collectives of other GPU memory are copied through the host; pass a buffer of the GPU that it is to use "
      "in its first MPI call with GPU memory, or give each process one GPU (CUDA_VISIBLE_DEVICES)",
      call, device, device == home.device() ? " in another CUDA context" : "", home.device());
}

team::Home* Teams::home_at(const lane::Place& place) noexcept {
  if (auto* const known = home(); known != nullptr) {
    // Memory of its own context that is there tells that it stands, unless a handle was given away again.
    const std::uint64_t ended = process_.copier().contexts_ended();
    if (place.context == known->context() && ended == contexts_ended_.load(std::memory_order_relaxed)) return known;
    auto* const standing = standing_home();
    if (standing != nullptr)
      contexts_ended_.store(ended, std::memory_order_relaxed);
    else
      tell_ended();
    return standing;
  }
  if (homeless_.load(std::memory_order_relaxed)) {
    tell_ended();
    return nullptr;
  }
  if (home_rests_.rests()) {
    home_rests_.pass();
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (auto* const known = home(); known != nullptr || homeless_.load(std::memory_order_relaxed)) return known;
  try {
    const auto& driver = process_.gpu().driver();
    // Loading may wait for kernels that run: not for one that waits for a peer, later.
    if (!process_.copier().mover().prepare(place.context) && kernel::available(driver))
      throw base::Error(base::ErrorClass::unsupported, "the GPU takes no kernels that copy");
    // Last: with it this rank's seats are counted on that GPU.
    auto made =
        std::make_unique<team::Home>(driver, place.context, place.device, world_.board(), process_.settings().unmap);
    process_.see_device(place.device);
    if (auto* const peers = process_.transfers().peers()) peers->live_at(*made);  // does not throw: then it stays
    home_ = std::move(made);
    home_seen_.store(home_.get(), std::memory_order_release);
  } catch (const std::exception& error) {
    const bool passes = base::is_shortage(error);
    if (passes)
      home_rests_.rest();
    else
      homeless_.store(true, std::memory_order_relaxed);
    base::log(passes && std::exchange(home_short_, true) ? base::Topic::info : base::Topic::warning,
              "collectives and messages on GPU memory go through the host{}: {}",
              passes ? " until there is memory for them" : "", error.what());
  }
  return home();
}

}  // namespace crosslane::interpose
