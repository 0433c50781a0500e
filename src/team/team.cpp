// See team.h.
#include "team/team.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <span>
#include <utility>

namespace crosslane::team {

using share::Ready;
using share::Verdict;

namespace {

// The GPU may fail: then nothing of ours ends.
void check_connection(const void* connection) { static_cast<const Team::Connection*>(connection)->throw_if_failed(); }

}  // namespace

Team::Team(share::Directory& directory, share::Board& board, engine::Engine& engine, const share::TeamKey& key,
           std::vector<int> local_ranks, int me, bool drives, std::optional<double> linger_us, std::size_t part_bytes)
    : directory_(directory),
      board_(board),
      engine_(engine),
      local_ranks_(std::move(local_ranks)),
      me_(me),
      drives_(drives),
      linger_us_(linger_us),
      part_bytes_(part_bytes),
      place_(board.join(key, size(), me)) {}

Team::~Team() { leave(); }

// What a team has on the board and in the window until all members' remains are over.
class Team::Ending final : public Leftover {
 public:
  Ending(share::Board& board, const share::TeamPlace& place, std::vector<int> local_ranks,
         std::unique_ptr<Connection> connection) noexcept
      : board_(board), place_(place), local_ranks_(std::move(local_ranks)), connection_(std::move(connection)) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() override { end(board_, place_, std::move(connection_)); }

  static void end(share::Board& board, const share::TeamPlace& place, std::unique_ptr<Connection> connection) noexcept {
    board.leave(place);
    if (connection != nullptr && !connection->home->driver().unloading())
      connection->home->window().give_back(connection->region);
  }

  [[nodiscard]] bool over() noexcept override {
    if (place_.has_remains(place_.me()) && own_are_over()) place_.show_remains(false);
    for (int member = 0; member < place_.members(); ++member)
      if (place_.has_remains(member) && board_.alive(local_ranks_[static_cast<std::size_t>(member)])) return false;
    return true;
  }

 private:
  [[nodiscard]] bool own_are_over() noexcept {
    try {
      connection_->throw_if_failed();
    } catch (const std::exception&) {
      return true;  // what was enqueued went with the context, or the GPU has failed
    }
    try {
      if (!end_) end_ = connection_->all_enqueued();
      return end_->done();
    } catch (const std::exception& error) {
      base::log(base::Topic::debug, "the GPU does not say what is left of a call that has failed: {}", error.what());
      return false;
    }
  }

  share::Board& board_;
  const share::TeamPlace place_;
  const std::vector<int> local_ranks_;
  std::unique_ptr<Connection> connection_;
  std::optional<engine::Completion> end_;
};

gpu::StreamView Team::Connection::queue() noexcept {
  lingerer->dismiss();
  return *stream;
}

engine::Completion Team::Connection::all_enqueued() {
  const gpu::ContextScope scope(home->driver(), home->context());
  const std::uint64_t value = marker->post(queue());
  return engine::Completion::of(marker->word(), value);
}

void Team::Connection::throw_if_ended() const {
  if (!home->stands())
    throw base::Error(base::ErrorClass::other, "the CUDA context that this rank took part with was destroyed or reset");
}

void Team::Connection::throw_if_failed() const {
  throw_if_ended();
  const gpu::ContextScope scope(home->driver(), home->context());
  static_cast<void>(stream->view().idle());
}

void Team::leave() noexcept {
  wait_for_readers();
  send_lingerer_away();
  if (!place_) return;
  const share::TeamPlace place = *place_;
  place_.reset();
  bool remains = false;
  for (int member = 0; member < place.members(); ++member) remains = remains || place.has_remains(member);
  Home* const home = connection_ == nullptr ? nullptr : connection_->home;
  if (!remains || home == nullptr || home->driver().unloading()) {
    Ending::end(board_, place, std::move(connection_));
    return;
  }
  try {
    std::vector<int> local_ranks = local_ranks_;
    auto ending = std::make_unique<Ending>(board_, place, std::move(local_ranks), std::move(connection_));
    if (!ending->over()) home->keep(std::move(ending));
  } catch (const std::bad_alloc&) {
    static_cast<void>(connection_.release());  // and it stays on the board: nothing of it may be used again
  }
}

// Up to its end it uses the region, which others may get next. Where there are remains it was sent away before them.
void Team::send_lingerer_away() noexcept {
  if (connection_ == nullptr || !connection_->lingerer->used() || !connection_->home->stands() ||
      connection_->home->driver().unloading() || place_->has_remains(me_))
    return;
  try {
    engine_.wait(connection_->all_enqueued(), {.call = "leaving a communicator",
                                               .sequence = sequence_,
                                               .check = check_connection,
                                               .checked = connection_.get()});
  } catch (const std::exception& error) {
    base::log(base::Topic::warning, "leaving a communicator: {}", error.what());
  }
}

// The last direct call that all members have come to, or still may: who has died comes to none any more. System calls.
std::uint64_t Team::last_begun() const noexcept {
  std::uint64_t last = direct_;
  for (int member = 0; member < size(); ++member)
    if (!alive(member)) last = std::min(last, place_->arrived(member).load(std::memory_order_acquire));
  return last;
}

// Of a process that has ended no kernel is left.
bool Team::is_through(int member, std::uint64_t direct) const noexcept {
  return place_->finished(member).load(std::memory_order_acquire) >= direct || !alive(member);
}

// All have arrived at it, or this rank would not be through: what is left of it needs kernels only, none of this rank's. Unless one died before:
// then nobody has begun it.
void Team::wait_for_readers() noexcept {
  if (!place_) return;
  struct Reader {
    const Team& team;
    int member = 0;
  } reader{*this};
  engine::Watch watch{.call = "leaving a communicator", .sequence = sequence_};
  watch.check = [](const void* checked) {
    const auto& [team, member] = *static_cast<const Reader*>(checked);
    const std::uint64_t begun = team.last_begun();
    if (!team.alive(member) || (begun < team.direct_ && team.is_through(member, begun)))
      throw base::Error(base::ErrorClass::other, "the process of one of its ranks has ended, which is not waited for");
  };
  watch.checked = &reader;
  bool in_vain = false;
  for (; reader.member < size(); ++reader.member) {
    if (in_vain && is_through(reader.member, last_begun())) continue;
    watch.peer = rank(reader.member);
    try {
      engine_.wait(engine::Completion::of(place_->finished(reader.member), direct_), watch);
    } catch (const std::exception& error) {
      if (!std::exchange(in_vain, true)) base::log(base::Topic::warning, "leaving a communicator: {}", error.what());
    }
  }
}

void Team::withdraw() noexcept {
  if (place_) place_->withdraw();
}

void Team::fail(int culprit) noexcept {
  share::Entry& own = place_->own_entry();
  own.culprit.store(culprit, std::memory_order_relaxed);
  own.failed.store(direct_, std::memory_order_release);
}

std::optional<int> Team::culprit() const noexcept {
  for (int member = 0; member < size(); ++member) {
    const share::Entry& entry = place_->entry(member);
    if (entry.failed.load(std::memory_order_acquire) == direct_) return entry.culprit.load(std::memory_order_relaxed);
  }
  return std::nullopt;
}

std::optional<int> Team::dead() const noexcept {
  for (int member = 0; member < size(); ++member)
    if (!alive(member)) return member;
  return std::nullopt;
}

void Team::stop_waiting() const noexcept {
  auto* const abort = reinterpret_cast<std::uint32_t*>(connection_->words.data() + Connection::abort_at);
  std::atomic_ref(*abort).store(1, std::memory_order_release);
}

void Team::lose() noexcept {
  stop_waiting();
  if (!withdrawn()) withdraw();
}

std::optional<engine::Completion> Team::end_of_remains() noexcept {
  try {
    connection_->throw_if_failed();  // nothing is left on a GPU that has, nor of a context that has ended
    place_->show_remains(true);
    return connection_->all_enqueued();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "behind a call that has failed: {}", error.what());
    return std::nullopt;
  }
}

// What memory may be wanting for comes behind what others must see.
engine::Task<> Team::clear_away() { return clear_away(end_of_remains()); }

engine::Task<> Team::clear_away(std::optional<engine::Completion> end) {
  if (end) co_await end->or_after(std::chrono::seconds{1});
  if (end && end->done())
    place_->show_remains(false);
  else if (place_->has_remains(me_))
    lose();
}

Verdict Team::enter(Verdict wish, Pace pace, engine::Watch watch) {
  ++sequence_;
  if (!place_) return Verdict::staged;
  place_->enter(sequence_);
  // Who has to wait for nobody does not: who is late finds that it goes to MPI.
  const bool waits = pace == Pace::blocking && wish != Verdict::staged;
  if (!asks_) {
    // That a device was seen and that the team is whole stay so; afterwards it is a lapse that ends here.
    if (!place_->whole() || !directory_.device_seen()) return Verdict::staged;
    if (!waits && far_ahead()) return Verdict::staged;
    place_->ask_from(sequence_);
    asks_ = true;
  } else if (!waits && far_ahead()) {
    place_->ask_no_more(sequence_);
    asks_ = !far_ahead();  // once more, after all can see it
    if (!asks_) return Verdict::staged;
    place_->ask_from(sequence_);
  }
  if (waits && far_ahead()) {
    watch.sequence = sequence_;
    wait_for_laggards(watch);
  }
  // A member in MPI cannot be called back; and only a team that is connected everywhere has a choice, which lasts.
  if (const std::uint64_t lapses = place_->lapses(); !everybody_asks_ || lapses != lapses_) {
    lapses_ = lapses;
    everybody_asks_ = place_->everybody_asks(sequence_);
    all_mapped_ = false;  // somebody may have withdrawn
  }
  const bool granted =
      wish != Verdict::staged && connected_everywhere() && (everybody_asks_ || !place_->somebody_unasked(sequence_));
  return place_->claim(sequence_, granted ? wish : Verdict::staged);
}

// True while the verdict of this call cannot be written.
bool Team::far_ahead() noexcept {
  if (sequence_ <= clear_until_) return false;
  if (place_->laggard(sequence_) >= 0) return true;
  clear_until_ = place_->clear_until();
  return false;
}

bool Team::connected_everywhere() noexcept {
  if (!connected()) return false;
  all_mapped_ = all_mapped_ || place_->all_ready(Ready::mapped);
  return all_mapped_;
}

void Team::wait_for_laggards(engine::Watch watch) {
  struct Laggard {
    const Team& team;
    int member;
    engine::Completion comes;
  } laggard{*this, place_->laggard(sequence_), {}};
  watch.check = [](const void* checked) {
    const auto& [team, member, comes] = *static_cast<const Laggard*>(checked);
    if (!team.alive(member) && !comes.done()) team.fail_without(member);
  };
  watch.checked = &laggard;
  for (; laggard.member >= 0; laggard.member = place_->laggard(sequence_)) {
    watch.peer = rank(laggard.member);
    laggard.comes =
        engine::Completion::of(place_->entered(laggard.member), share::TeamPlace::reached_by_laggard(sequence_));
    engine_.wait(laggard.comes, watch);
  }
  clear_until_ = place_->clear_until();
}

void Team::arrive(const engine::Watch& watch, share::Excuse excuse) {
  announce(excuse);
  if (engine_.soon([this] { return place_->all_arrived(direct_); })) return;
  engine::Watch waiting = watch;
  waiting.sequence = sequence_;
  Team* const self = this;
  waiting.check = [](const void* checked) { (*static_cast<Team* const*>(checked))->check_all_come(); };
  waiting.checked = &self;
  try {
    for (int member = 0; member < size(); ++member) {
      if (member == me_) continue;
      waiting.peer = rank(member);
      engine_.wait(arrival_of(member), waiting);
    }
  } catch (...) {
    finish();
    throw;
  }
}

// All members find the same: what the dead have written stays as it is. None launches anything in this call, so nobody is to be told.
void Team::check_all_come() {
  const std::uint64_t begun = last_begun();
  if (begun >= direct_) return;
  // Some may still read the records of the last call that has begun, whose place a later one's excuse takes.
  for (int member = 0; member < size(); ++member)
    if (!is_through(member, begun)) return;
  if (!withdrawn()) withdraw();
  for (int member = 0; member < size(); ++member)
    if (!has_arrived(member, direct_) && !alive(member)) fail_without(member);
}

void Team::fail_without(int member) const {
  throw base::Error(base::ErrorClass::other,
                    "rank {} of the communicator does not come to this call: its process is gone", rank(member));
}

void Team::announce(share::Excuse excuse) {
  ++direct_;
  expected_.emplace(connection_->home->turns(), *place_, direct_);
  place_->arrive(direct_, excuse);
}

bool Team::excused() const {
  bool to_mpi = false;
  for (int member = 0; member < size(); ++member) {
    const share::Excuse excuse = place_->excuse(member, direct_);
    if (excuse == share::Excuse::failed && member != me_)
      throw base::Error(base::ErrorClass::other,
                        "rank {} of the communicator could not begin it; its own error says why", rank(member));
    to_mpi = to_mpi || excuse != share::Excuse::none;
  }
  return to_mpi;
}

engine::Completion Team::arrival_of(int member) const noexcept {
  return engine::Completion::of(place_->arrived(member), direct_);
}

bool Team::may_start(unsigned blocks) {
  if (!board_.give_turn(*place_, direct_, connection_->seats, blocks)) return false;
  has_turn_ = true;
  return expected_->is_next();
}

void Team::finish() noexcept {
  if (!std::exchange(has_turn_, false)) board_.forgo_turn(*place_, direct_);
  expected_.reset();
  place_->finish(direct_);
}

TeamView Team::view() const noexcept {
  return {{.me = me_,
           .size = size(),
           .most_on_one_gpu = connection_->most_on_one_gpu,
           .blocks = connection_->blocks,
           .emulated = connection_->home->driver().emulated,
           .abilities = place_->common_abilities()},
          connection_->home->kernels(),
          connection_->layout,
          connection_->regions,
          large_windows_mapped() ? connection_->large : TeamView::Regions{}};
}

bool Team::map_large_windows() {
  if (large_windows_mapped()) return true;
  if (connection_->large_refused) return false;
  if (connection_->large_rests.rests()) {
    connection_->large_rests.pass();
    return false;
  }
  Home& home = *connection_->home;
  TeamView::Regions large{};
  try {
    for (int member = 0; member < size(); ++member) {
      const share::WindowRecord& window = board_.window(local_rank(member));
      if (window.large_shown.load(std::memory_order_acquire) == 0) return false;
      large[static_cast<std::size_t>(member)] =
          member == me_ ? home.large_window() : home.reach(local_rank(member), window.large);
    }
  } catch (const base::Error& error) {
    connection_->large_refused = !base::is_shortage(error);
    if (!connection_->large_refused) connection_->large_rests.rest();
    base::log(connection_->large_refused ? base::Topic::warning : base::Topic::info,
              "no windows for large reductions, slower algorithms take them: {}", error.what());
    return false;
  }
  connection_->large = large;
  connection_->large_mapped.store(true, std::memory_order_release);
  return true;
}

std::optional<Team::Refusal> Team::prepare(Home& home) {
  if (connected() || refused_) return std::nullopt;
  if (!place_) {
    refused_ = true;
    auto why = why_nowhere();
    return why ? std::optional(Refusal{*std::move(why)}) : std::nullopt;
  }
  if (rests_.rests()) {
    rests_.pass();
    return std::nullopt;
  }
  try {
    if (connection_ == nullptr) {
      take_region(home);
    } else if (place_->all_ready(Ready::region)) {
      map_regions();
    }
    return std::nullopt;
  } catch (const base::Error& error) {
    const bool passes = base::is_shortage(error);
    if (passes) {
      rests_.rest();
    } else {
      refused_ = true;
      place_->show_ready(Ready::never);
    }
    return Refusal{error.what(), passes};
  }
}

// Why it has no place on the board; one of too many members says so for all.
std::optional<std::string> Team::why_nowhere() const {
  if (size() > share::Board::most_members) {
    if (me_ != 0) return std::nullopt;
    return fmt::format("{} of its ranks share the node, and at most {} run collectives between their GPUs", size(),
                       share::Board::most_members);
  }
  return fmt::format(
      "the node's table of {} communicators is full; free those that are used no more (or a rank of the node "
      "died in the middle of a change of that table)",
      share::Board::most_teams);
}

namespace {

// For host-driven algorithms alone: where the driver has no such events, the others remain.
std::vector<gpu::Event> make_events(const gpu::Driver& driver, share::EventHandles& handles) {
  std::vector<gpu::Event> events;
  try {
    for (share::MemoryHandle& handle : handles) {
      events.emplace_back(driver, gpu::Event::Use::across_processes);
      const CUipcEventHandle exported = events.back().export_handle();
      static_assert(sizeof exported == sizeof handle);
      std::memcpy(handle.data(), &exported, sizeof exported);
    }
  } catch (const base::Error& error) {
    base::log(base::Topic::info, "no host-driven collectives: {}", error.what());
    events.clear();
  }
  return events;
}

}  // namespace

void Team::take_region(Home& home) {
  auto made = std::make_unique<Connection>();
  made->home = &home;
  made->layout = region_layout(size(), part_bytes_);
  // First: where memory is short, nothing was made whose end would wait for the GPU.
  home.let_go();
  const auto region = home.window().take(made->layout.bytes);
  if (!region)
    throw base::Error(base::ErrorClass::no_memory,
                      "no room is left for its window: library memory for that is used up; free communicators that are "
                      "used no more");
  made->region = *region;
  share::EventHandles handles{};
  const gpu::ContextScope scope(home.driver(), home.context());
  try {
    made->stream.emplace(home.driver(), gpu::Stream::Priority::high);
    const engine::Watch watch{
        .call = "a kernel that stays for further calls", .check = check_connection, .checked = made.get()};
    made->lingerer.emplace(home.driver(), engine_, watch, kernel::told_room(static_cast<std::uint32_t>(size())),
                           Lingerer::stay_of(linger_us_, home.driver()));
    made->marker.emplace(home.driver());
    made->words = gpu::PinnedPages(home.driver(), 3 * share::line_bytes);
    made->events = make_events(home.driver(), handles);
    // Zeroed before anybody else may write flags into it.
    gpu::fill_async(made->region.data, 0, made->region.bytes, *made->stream);
    const std::uint64_t zeroed = made->marker->post(*made->stream);
    engine_.wait(engine::Completion::of(made->marker->word(), zeroed),
                 {.call = "preparing a communicator's GPU memory", .check = check_connection, .checked = made.get()});
  } catch (...) {
    home.window().give_back(made->region);
    throw;
  }
  place_->show_region(region->region, !home.runs_side_by_side(), handles);
  connection_ = std::move(made);
  place_->show_ready(Ready::region);
}

void Team::map_regions() {
  Home& home = *connection_->home;
  // What an earlier try left, which found no memory.
  connection_->gpu.clear();
  connection_->seats.clear();
  connection_->peer_events.clear();
  std::map<share::Uuid, std::vector<int>> on_gpu;
  for (int member = 0; member < size(); ++member) {
    auto& sharers = on_gpu[home.board().window(local_rank(member)).gpu];
    sharers.push_back(member);
    connection_->gpu.push_back(sharers.front());
    connection_->seats.push_back(home.board().window(local_rank(member)).seats);
    connection_->most_on_one_gpu = std::max(connection_->most_on_one_gpu, static_cast<int>(sharers.size()));
  }
  // Half is left to the application, and to other calls, which wait for their seats.
  connection_->blocks = home.board().fewest_seats(local_ranks_) / 2;
  // Ranks that take turns on a GPU must not wait for one another on it: each wait would last a time slice (COLL, 4.1.3).
  const bool in_turns = std::ranges::any_of(on_gpu, [this](const auto& gpu) {
    return gpu.second.size() > 1 &&
           std::ranges::any_of(gpu.second, [this](int member) { return place_->takes_turns(member); });
  });
  abilities_ = in_turns ? 0U : static_cast<std::uint32_t>(share::spins);
  if ((in_turns || drives_) && open_events()) abilities_ |= share::drives;
  if (!parallel_edges_) abilities_ |= share::single_edges;
  abilities_ |= home.whole_lines(local_ranks_);
  if (in_turns && me_ == 0) {
    base::log(base::Topic::info,
              "several ranks share a GPU without MPS: only collectives that the host drives go direct; "
              "nvidia-cuda-mps-control -d starts MPS");
  }
  for (int member = 0; member < size(); ++member)
    connection_->regions[static_cast<std::size_t>(member)] =
        member == me_ ? connection_->region.data : home.reach(local_rank(member), place_->region(member));
  connection_->mapped = true;
  place_->show_abilities(abilities_);
  place_->show_ready(Ready::mapped);
}

bool Team::open_events() {
  if (connection_->events.empty()) return false;
  const gpu::Driver& driver = connection_->home->driver();
  const gpu::ContextScope scope(driver, connection_->home->context());
  try {
    for (int member = 0; member < size(); ++member) {
      auto& opened = connection_->peer_events.emplace_back();
      if (member == me_) continue;
      for (const share::MemoryHandle& handle : place_->events(member)) {
        CUipcEventHandle exported;
        std::memcpy(&exported, handle.data(), sizeof exported);
        opened.emplace_back(driver, exported);
      }
    }
  } catch (const base::Error& error) {
    base::log(base::Topic::info, "no host-driven collectives: {}", error.what());
    return false;
  }
  return true;
}

}  // namespace crosslane::team
