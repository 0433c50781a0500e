// See prepared.h. Three exchanges: whether all can and want the same, where everything is, whether all have mapped it. A member that
// fails says so in the next one, so that all throw alike and none waits for ever.
#include "team/prepared.h"

#include "base/clock.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <utility>

namespace crosslane::team {
namespace {

constexpr std::size_t words_in_line = share::line_bytes / sizeof(std::uint64_t);
constexpr std::uint64_t unknown = ~std::uint64_t{0};

// How it went on one member; travels as bytes.
struct Outcome {
  std::int32_t failed = 0;
  base::ErrorClass error_class = base::ErrorClass::other;
  std::array<char, 376> reason{};

  void fail(const std::exception& error) noexcept {
    failed = 1;
    const auto* const known = dynamic_cast<const base::Error*>(&error);
    error_class = known != nullptr ? known->error_class() : base::ErrorClass::no_memory;
    const std::string text = error.what();
    std::copy_n(text.begin(), std::min(text.size(), reason.size() - 1), reason.begin());
  }
};

// What a member says in an exchange.
template <class Item>
struct Told {
  Outcome outcome;
  std::vector<Item> items;
};

// Everybody's, by member; all have as many items.
template <class Item>
std::vector<Told<Item>> exchanged(const Prepared::Exchange& exchange, const Told<Item>& mine, int members) {
  const std::size_t count = mine.items.size();
  std::vector<std::byte> card(sizeof(Outcome) + count * sizeof(Item));
  std::memcpy(card.data(), &mine.outcome, sizeof(Outcome));
  if (count != 0) std::memcpy(card.data() + sizeof(Outcome), mine.items.data(), count * sizeof(Item));
  std::vector<std::byte> cards(card.size() * static_cast<std::size_t>(members));
  exchange.engine.run(exchange.messenger.all_gather(card, cards), exchange.watch);
  std::vector<Told<Item>> all(static_cast<std::size_t>(members));
  for (std::size_t member = 0; member < all.size(); ++member) {
    const std::byte* const theirs = cards.data() + member * card.size();
    std::memcpy(&all[member].outcome, theirs, sizeof(Outcome));
    all[member].items.resize(count);
    if (count != 0) std::memcpy(all[member].items.data(), theirs + sizeof(Outcome), count * sizeof(Item));
  }
  return all;
}

void throw_failure(const Outcome& outcome, int member, int me) {
  if (outcome.failed == 0) return;
  const std::string reason = outcome.reason.data();
  if (member == me) throw base::Error(outcome.error_class, reason);
  throw base::Error(outcome.error_class, "rank {} of the communicator cannot take part: {}", member, reason);
}

// The own reason first.
template <class Item>
void throw_failures(const std::vector<Told<Item>>& all, int me) {
  throw_failure(all[static_cast<std::size_t>(me)].outcome, me, me);
  for (std::size_t member = 0; member < all.size(); ++member)
    throw_failure(all[member].outcome, static_cast<int>(member), me);
}

// Of calls this large chunks through large windows are worth their memory.
bool worth_large_window(std::size_t largest) noexcept {
  constexpr std::size_t least = std::size_t{4} << 20;
  return largest == 0 || largest >= least;
}

std::size_t part_bytes_for(std::size_t largest) noexcept {
  constexpr std::size_t least = std::size_t{64} << 10;
  constexpr std::size_t most = std::size_t{2} << 20;
  return largest == 0 ? most : std::clamp(largest, least, most);
}

}  // namespace

struct Prepared::Opening {
  share::TeamKey key{};
  std::uint64_t largest = 0;
  std::uint64_t buffers = 0;
  std::uint64_t half = 0;  // reserved here
};

namespace {

// Given back unless kept.
class Half {
 public:
  Half(Home* home, bool wanted) noexcept
      : home_(home), reserved_(wanted && home != nullptr && home->board().reserve_half()) {}
  ~Half() {
    if (reserved_) home_->board().give_half_back();
  }
  Half(const Half&) = delete;
  Half& operator=(const Half&) = delete;
  [[nodiscard]] bool reserved() const noexcept { return reserved_; }
  void keep() noexcept { reserved_ = false; }

 private:
  Home* home_;
  bool reserved_;
};

}  // namespace

// A buffer; or, behind those, the large window: `bytes` and where they are.
struct Prepared::Shown {
  share::Exposed buffer{};
  std::uint64_t bytes = 0;
  share::Region large{};
};

Prepared::Prepared(engine::Engine& engine, std::vector<int> local_ranks, int me)
    : engine_(engine), local_ranks_(std::move(local_ranks)), me_(me) {}

Prepared::~Prepared() { leave(); }

void Prepared::prepare(const Exchange& exchange, const Wish& wish) {
  Half half(wish.home, connection_ == nullptr && !wish.refusal);
  const Agreed agreed = agree(exchange, wish, half.reserved());
  if (wish.reclaim) wish.reclaim();
  Home& home = *wish.home;

  // What is new is kept apart until all members have it. Until then nobody launches anything.
  std::shared_ptr<Connection> made;
  struct GivesBack {
    const std::shared_ptr<Connection>& made;
    ~GivesBack() {
      if (made != nullptr) give_back(*made);
    }
  } const gives_back{made};
  Told<Shown> showing;
  try {
    if (connection_ == nullptr) {
      kept_ = std::make_unique<Kept>();
      made = take(home, wish.largest, agreed);
    }
  } catch (const std::exception& error) {
    showing.outcome.fail(error);
  }
  for (const Buffer& buffer : wish.buffers) {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.address);
    showing.items.push_back(
        {home.exposure().show(buffer.info, buffer.address), buffer.info.base + buffer.info.size - begin});
  }
  showing.items.emplace_back();
  if (made != nullptr && made->large) {
    showing.items.back().bytes = made->large->bytes;
    showing.items.back().large = made->large->region;
  }
  const auto shown = exchanged(exchange, showing, size());

  std::vector<Shared> buffers(wish.buffers.size());
  Told<std::uint8_t> ending;
  bool large = false;
  try {
    throw_failures(shown, me_);
    if (made != nullptr) {
      map(*made);
      std::vector<Shown> windows;
      windows.reserve(shown.size());
      for (const Told<Shown>& member : shown) windows.push_back(member.items.back());
      large = map_large(*made, windows);
    }
    for (std::size_t index = 0; index < buffers.size(); ++index) {
      std::vector<Shown> all;
      all.reserve(shown.size());
      for (const Told<Shown>& member : shown) all.push_back(member.items[index]);
      buffers[index] = map(home, wish.buffers[index], all);
    }
  } catch (const std::exception& error) {
    ending.outcome.fail(error);
  }
  for (const Shared& buffer : buffers) ending.items.push_back(buffer.mapped ? 1 : 0);
  ending.items.push_back(large ? 1 : 0);
  const auto ended = exchanged(exchange, ending, size());
  throw_failures(ended, me_);

  for (const Told<std::uint8_t>& member : ended)
    for (std::size_t index = 0; index < buffers.size(); ++index)
      buffers[index].mapped = buffers[index].mapped && member.items[index] != 0;
  if (made != nullptr) {
    if (std::ranges::any_of(ended, [](const Told<std::uint8_t>& member) { return member.items.back() == 0; })) {
      made->view = made->view->without_large_windows();
      if (made->large) home.take_back_large_window(*std::exchange(made->large, std::nullopt));
    }
    connection_ = std::move(made);
    if (connection_->half) half.keep();
    const TeamView& view = *connection_->view;
    connection_->seats = blocks_a_sharer(view.blocks(), view.most_on_one_gpu());
    home.board().set_seats_aside(connection_->seats);
  }
  buffers_ = std::move(buffers);
  const auto left_out = std::ranges::count_if(buffers_, [](const Shared& each) { return !each.mapped; });
  if (left_out != 0) {
    base::log(
        base::Topic::info,
        "crosslane_prepare: {} of {} buffers cannot be mapped by all ranks (no memory of cuMemAlloc, or the driver "
        "refuses); calls with them go through library memory",
        left_out, buffers_.size());
  }
}

// Throws on all members unless all can, and want the same; else the name of what they make.
Prepared::Agreed Prepared::agree(const Exchange& exchange, const Wish& wish, bool half) const {
  Told<Opening> mine;
  // No name of a communicator's team is like this one: those are mixed of two words (communicators.h).
  const share::TeamKey key{~static_cast<std::uint64_t>(static_cast<std::uint32_t>(local_ranks_.front())), wish.number};
  mine.items.push_back({key, wish.largest, wish.buffers.size(), half ? 1U : 0U});
  if (wish.refusal) mine.outcome.fail(*wish.refusal);
  const auto all = exchanged(exchange, mine, size());
  throw_failures(all, me_);
  const Opening& own = mine.items.front();
  for (int member = 0; member < size(); ++member) {
    const Opening& theirs = all[static_cast<std::size_t>(member)].items.front();
    if (theirs.largest == own.largest && theirs.buffers == own.buffers) continue;
    throw base::Error(
        base::ErrorClass::argument,
        "ranks {} and {} of the communicator pass {} and {} bytes, {} and {} buffers: bytes and count must "
        "be the same on all of them",
        me_, member, own.largest, theirs.largest, own.buffers, theirs.buffers);
  }
  const bool everywhere = std::ranges::all_of(all, [](const auto& theirs) { return theirs.items.front().half != 0; });
  return {all.front().items.front().key, everywhere};
}

std::shared_ptr<Prepared::Connection> Prepared::take(Home& home, std::size_t largest, const Agreed& agreed) {
  auto made = std::make_shared<Connection>();
  made->home = &home;
  made->layout = region_layout(size(), part_bytes_for(largest));
  made->half = agreed.half;
  const auto place = home.board().join(agreed.key, size(), me_);
  if (!place)
    throw base::Error(base::ErrorClass::no_memory, "the node's table of {} teams is full; free communicators first",
                      share::Board::most_teams);
  made->place = *place;
  try {
    const gpu::ContextScope scope(home.driver(), home.context());
    made->stream.emplace(home.driver());
    made->marker.emplace(home.driver());
    made->words = gpu::PinnedBuffer(home.driver(), 2 * share::line_bytes);
    std::ranges::fill(std::span{made->words.data(), made->words.size()}, std::byte{0});
    const auto region = home.window().take(made->layout.bytes, *made->stream);
    if (!region)
      throw base::Error(base::ErrorClass::no_memory,
                        "no room is left for the {} bytes that enqueued calls need: library memory for that is used "
                        "up; free communicators that are used no more",
                        made->layout.bytes);
    made->region = *region;
    if (worth_large_window(largest)) made->large = home.lend_large_window(large_window_bytes_for(size()));
    // Zeroed before anybody else may write flags into it.
    const std::uint64_t zeroed = made->marker->post(*made->stream);
    engine_.wait(engine::Completion::of(made->marker->word(), zeroed),
                 {.call = "crosslane_prepare", .check = look_for_failure, .checked = made.get()});
  } catch (...) {
    give_back(*made);
    throw;
  }
  made->place.show_region(made->region.region, !home.runs_side_by_side(), {});
  return made;
}

void Prepared::map(Connection& connection) const {
  Home& home = *connection.home;
  std::map<share::Uuid, int> on_gpu;
  int most_on_one_gpu = 1;
  std::array<std::byte*, share::Board::most_members> regions{};
  for (int member = 0; member < size(); ++member) {
    const int local_rank = local_ranks_[static_cast<std::size_t>(member)];
    most_on_one_gpu = std::max(most_on_one_gpu, ++on_gpu[home.board().window(local_rank).gpu]);
    regions[static_cast<std::size_t>(member)] =
        member == me_ ? connection.region.data : home.reach(local_rank, connection.place.region(member));
  }
  if (most_on_one_gpu > 1 && !home.runs_side_by_side())
    throw base::Error(base::ErrorClass::unsupported,
                      "several ranks share a GPU without MPS; start it with nvidia-cuda-mps-control -d");
  connection.view.emplace(TeamView::Facts{.me = me_,
                                          .size = size(),
                                          .most_on_one_gpu = most_on_one_gpu,
                                          .blocks = home.board().fewest_seats(local_ranks_) / (connection.half ? 2 : 4),
                                          .emulated = home.driver().emulated,
                                          .abilities = share::spins | home.whole_lines(local_ranks_)},
                          home.kernels(), connection.layout, regions);
}

// False where some member has none, or one cannot be mapped: then nobody uses them.
bool Prepared::map_large(Connection& connection, const std::vector<Shown>& all) const {
  if (std::ranges::any_of(all, [](const Shown& theirs) { return theirs.bytes == 0; })) return false;
  Home& home = *connection.home;
  TeamView::Regions large{};
  try {
    for (int member = 0; member < size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      large[m] = member == me_ ? connection.large->data : home.reach(local_ranks_[m], all[m].large);
    }
  } catch (const base::Error& error) {
    base::log(base::Topic::info, "crosslane_prepare: no windows for large calls: {}", error.what());
    return false;
  }
  connection.view = connection.view->with_large_windows(large);
  return true;
}

Prepared::Shared Prepared::map(Home& home, const Buffer& mine, const std::vector<Shown>& all) const {
  Shared shared;
  shared.buffer_id = mine.info.buffer_id;
  shared.bytes = ~std::size_t{0};
  shared.mapped = true;
  for (int member = 0; member < size(); ++member) {
    const Shown& theirs = all[static_cast<std::size_t>(member)];
    shared.bytes = std::min<std::size_t>(shared.bytes, theirs.bytes);
    std::byte* address = mine.address;
    std::shared_ptr<const gpu::Mapping> mapping;
    if (theirs.buffer.id == 0) {
      shared.mapped = false;
    } else if (member != me_) {
      mapping = home.exposure().hold(local_ranks_[static_cast<std::size_t>(member)], theirs.buffer,
                                     share::Exposure::Closing::at_once);
      shared.mapped = shared.mapped && mapping != nullptr;
      address = mapping == nullptr ? nullptr : mapping->data() + theirs.buffer.offset;
    }
    shared.address.push_back(address);
    shared.mapping.push_back(std::move(mapping));
  }
  return shared;
}

int Prepared::find(const std::byte* address, std::size_t bytes) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  int found = -1;
  std::uintptr_t nearest = 0;
  for (std::size_t index = 0; index < buffers_.size(); ++index) {
    const Shared& buffer = buffers_[index];
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.address[static_cast<std::size_t>(me_)]);
    if (!buffer.mapped || at < begin || at - begin > buffer.bytes || bytes > buffer.bytes - (at - begin)) continue;
    // Several may lie in one allocation, to whose end each goes, here and not elsewhere: the last one that begins before it is meant.
    if (found >= 0 && begin <= nearest) continue;
    found = static_cast<int>(index);
    nearest = begin;
  }
  return found;
}

std::byte* Prepared::reach(int index, const std::byte* address, int member) const noexcept {
  const Shared& buffer = buffers_[static_cast<std::size_t>(index)];
  return buffer.address[static_cast<std::size_t>(member)] + (address - buffer.address[static_cast<std::size_t>(me_)]);
}

bool Prepared::lives(const std::byte* address, std::uint64_t buffer_id) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return std::ranges::none_of(buffers_, [&](const Shared& buffer) {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.address[static_cast<std::size_t>(me_)]);
    return buffer.mapped && at >= begin && at - begin < buffer.bytes && buffer_id != buffer.buffer_id;
  });
}

std::uint64_t* Prepared::failed_word() const noexcept {
  return reinterpret_cast<std::uint64_t*>(connection_->words.device_address());
}

void Prepared::give_up() const noexcept {
  gave_up_.store(true, std::memory_order_relaxed);
  auto* const word = reinterpret_cast<std::atomic<std::uint64_t>*>(connection_->words.data());
  word->store(static_cast<std::uint64_t>(me_) + 1, std::memory_order_release);
}

// The GPU may fail: then nothing of ours ends.
void Prepared::look_for_failure(const void* connection) {
  const auto& mine = *static_cast<const Connection*>(connection);
  const gpu::ContextScope scope(mine.home->driver(), mine.home->context());
  static_cast<void>(mine.stream->view().idle());
}

int Prepared::missing() const noexcept {
  if (connection_ == nullptr) return -1;
  const auto* const word = reinterpret_cast<const std::atomic<std::uint64_t>*>(connection_->words.data());
  return static_cast<int>(word->load(std::memory_order_acquire)) - 1;
}

// Facts of an arrival: launches that have ended, or that nobody knows that; and, not 0, that one has not.
constexpr std::size_t launches_ended = 0, under_way = 1;

constexpr std::size_t counters_bytes = 2 * sizeof(std::uint64_t);  // launches, finished: the first of kernel::Control
static_assert(offsetof(kernel::Control, launches) == 0 && offsetof(kernel::Control, finished) == sizeof(std::uint64_t));

// What others may use up to the end.
struct Prepared::Kept final : Leftover {
  [[nodiscard]] bool over() noexcept override { return false; }
  std::shared_ptr<Connection> connection;
  std::vector<Shared> buffers;
};

struct Prepared::Count {
  std::uint64_t launches;
  bool under_way;  // one of which this rank knows has not ended
};

// Of the GPU, for no host knows how often a graph was launched. On a stream of its own: the application's may be busy.
void Prepared::ask_for_count(Connection& connection) const {
  const gpu::ContextScope scope(connection.home->driver(), connection.home->context());
  gpu::copy_async(connection.words.data() + share::line_bytes, connection.region.data, counters_bytes,
                  *connection.stream);
  connection.asked = connection.marker->post(*connection.stream);
}

// Once it has answered.
Prepared::Count Prepared::count(const Connection& connection) const noexcept {
  std::array<std::uint64_t, 2> counted;
  std::memcpy(counted.data(), connection.words.data() + share::line_bytes, counters_bytes);
  const auto [launches, finished] = counted;
  return {launches, finished != 0 || launches < enqueued_.load(std::memory_order_relaxed)};
}

void Prepared::show(Connection& connection, std::uint64_t launches, bool any_under_way) const noexcept {
  share::Arrival& mine = connection.place.own_arrival(connection.shown + 1);
  mine.facts = {};
  mine.facts[launches_ended] = launches;
  mine.facts[under_way] = any_under_way ? 1 : 0;
  connection.place.arrive(++connection.shown);
}

void Prepared::announce() noexcept {
  if (connection_ == nullptr || connection_->shown != 0) return;
  Connection& connection = *connection_;
  try {
    if (connection.home->stands() && !gave_up_.load(std::memory_order_relaxed)) {
      ask_for_count(connection);
      engine_.wait(engine::Completion::of(connection.marker->word(), *connection.asked),
                   {.call = "leaving a communicator", .check = look_for_failure, .checked = &connection});
      connection.asked.reset();
      const auto [launches, any_under_way] = count(connection);
      if (!any_under_way) free_seats(connection);
      return show(connection, launches, any_under_way);
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "the GPU does not say what enqueued calls have done: {}", error.what());
  }
  show(connection, unknown, false);
}

// Others read a record until they have shown the next but one: until then this rank shows no other one in its place.
bool Prepared::settle() noexcept {
  if (connection_ == nullptr) return true;
  Connection& connection = *connection_;
  if (connection.shown == 0) return false;
  while (connection.place.all_arrived(connection.shown)) {
    bool known = true;  // of a GPU whose context is gone nobody can tell
    bool ended = true;
    std::uint64_t most = 0;
    const auto& mine = connection.place.arrival(me_, connection.shown).facts;
    for (int member = 0; member < size(); ++member) {
      const auto& theirs = connection.place.arrival(member, connection.shown).facts;
      known = known && theirs[launches_ended] != unknown;
      ended = ended && theirs[launches_ended] == mine[launches_ended] && theirs[under_way] == 0;
      most = std::max(most, theirs[launches_ended]);
    }
    if (known && ended) {
      give_back(connection);
      connection_ = nullptr;
      buffers_.clear();
      return true;
    }
    warn(known);
    if (!known) {
      // The same on all: nobody will ever know more. But the seats are nobody else's affair.
      if (connection.home->stands() && connection.seats != 0) static_cast<void>(look(connection));
      if (connection.home->stands() && connection.seats != 0) return false;
      abandon();
      return true;
    }
    const auto launches = look(connection);
    if (!launches || *launches < most) return false;
    show(connection, *launches, false);
  }
  if (connection.seats != 0) static_cast<void>(look(connection));  // which are nobody else's affair
  return false;
}

void Prepared::warn(bool known) noexcept {
  if (std::exchange(warned_, true) || connection_->home->driver().unloading()) return;
  base::log(known ? base::Topic::warning : base::Topic::debug,
            "a communicator was freed, or MPI finalized, before the calls that were enqueued on it had ended on all "
            "its ranks; wait for your streams first. Its library memory is not used again before it is known that they "
            "have");
}

// How many launches have ended, if the GPU has said by now that none is left of which this rank knows; else it is asked, for a later look.
std::optional<std::uint64_t> Prepared::look(Connection& connection) const noexcept {
  if (!connection.home->stands()) return std::nullopt;
  if (connection.asked && !connection.marker->reached(*connection.asked)) return std::nullopt;
  if (std::exchange(connection.asked, std::nullopt)) {
    const auto [launches, any_under_way] = count(connection);
    if (!any_under_way) {
      free_seats(connection);
      return launches;
    }
  }
  try {
    ask_for_count(connection);
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "the GPU does not say what enqueued calls have done: {}", error.what());
  }
  return std::nullopt;
}

void Prepared::retire() noexcept {
  if (connection_ == nullptr) return;
  announce();
  constexpr std::chrono::milliseconds soon{10};
  const base::Time late = base::now() + soon;
  try {
    const share::TeamPlace& place = connection_->place;
    engine_.until([&] { return place.all_arrived(1) || base::now() >= late; }, {.call = "leaving a communicator"});
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "leaving a communicator with enqueued calls: {}", error.what());
  }
  static_cast<void>(settle());
}

// Returns once it does; false where its process has ended before.
bool Prepared::comes_to_leave(const Connection& connection, int member) const {
  struct Leaver {
    const share::Board& board;
    int local_rank;
  } const leaver{connection.home->board(), local_ranks_[static_cast<std::size_t>(member)]};
  const auto comes = engine::Completion::of(connection.place.arrived(member), 1);
  engine::Watch watch{.call = "leaving a communicator with enqueued calls", .peer = member};
  watch.check = [](const void* checked) {
    const auto& [board, local_rank] = *static_cast<const Leaver*>(checked);
    if (!board.alive(local_rank))
      throw base::Error(base::ErrorClass::other, "the process of one of its ranks has ended");
  };
  watch.checked = &leaver;
  try {
    engine_.wait(comes, watch);
  } catch (const std::exception&) {
    if (leaver.board.alive(leaver.local_rank)) throw;
  }
  return comes.done();
}

void Prepared::leave() noexcept {
  if (connection_ == nullptr) return;
  announce();
  try {
    for (int member = 0; member < size(); ++member) static_cast<void>(comes_to_leave(*connection_, member));
  } catch (const std::exception& error) {
    base::log(base::Topic::warning, "leaving a communicator with enqueued calls: {}", error.what());
  }
  if (settle()) return;
  warn(false);
  abandon();
}

// Its place on the board may be used again, its memory not.
void Prepared::abandon() noexcept {
  Home& home = *connection_->home;
  if (!home.stands()) free_seats(*connection_);
  home.board().leave(connection_->place);
  kept_->connection = std::exchange(connection_, nullptr);
  kept_->buffers = std::move(buffers_);
  home.keep(std::move(kept_));
}

// As far as is known this rank's kernels, which others' may wait for, are over, or have given up.
void Prepared::free_seats(Connection& connection) noexcept {
  share::Board& board = connection.home->board();
  board.take_seats_back(std::exchange(connection.seats, 0));
  if (std::exchange(connection.half, false)) board.give_half_back();
}

void Prepared::give_back(Connection& connection) noexcept {
  Home& home = *connection.home;
  home.board().leave(connection.place);
  if (home.driver().unloading()) return;
  if (connection.region.data != nullptr) home.window().give_back(connection.region);
  if (connection.large) home.take_back_large_window(*std::exchange(connection.large, std::nullopt));
}

}  // namespace crosslane::team
