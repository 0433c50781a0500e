// Where everything lies on the board, and the writes whose order matters. See board.h for the states.
#include "share/board.h"

#include "base/error.h"

#include <sched.h>

#include <algorithm>
#include <bitset>
#include <limits>
#include <new>

namespace crosslane::share {

struct TeamPlace::Slot {
  // Under the table's lock.
  TeamKey key;
  std::int32_t members;            // 0: free
  std::int32_t joined;             // members that hold it now
  std::atomic<std::int32_t> came;  // members that ever joined it
  alignas(line_bytes) std::atomic<std::uint64_t> lapses;
  // The last direct call that has its turn: stored with release after it.
  alignas(line_bytes) std::atomic<std::uint64_t> turned;
  std::array<std::atomic<std::uint64_t>, 2> turn;  // by parity
  // Under the table's lock: what that call keeps of each member's GPU, and where the seats of these are counted; 0 before the first one.
  std::uint32_t blocks;
  std::array<std::int32_t, Board::most_members> seats;
  // verdict + 4 * sequence of the call that it is for
  alignas(line_bytes) std::array<std::atomic<std::uint64_t>, ring> verdict;
};

struct TeamPlace::Member {
  struct alignas(line_bytes) {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> unasked_from;
    std::atomic<std::uint64_t> unasked_until;
  } entered;
  struct alignas(line_bytes) {
    std::atomic<std::uint64_t> word;
    std::array<Excuse, 2> excuse;  // by parity
  } arrived;
  struct alignas(line_bytes) {
    std::atomic<std::uint64_t> word;
    std::atomic<bool> remains;
  } finished;
  struct alignas(line_bytes) {
    std::atomic<Ready> ready;
    std::uint32_t turns;
    std::uint32_t abilities;
    std::atomic<std::uint32_t> matched;
    Region region;
    std::int32_t local_rank;  // under the table's lock, by whoever has joined
  } window;
  std::array<Arrival, 2> arrival;
  Entry entry;
  alignas(line_bytes) EventHandles events;
};

struct alignas(line_bytes) Board::Table {
  std::atomic<std::uint32_t> lock;
  // Apart from the lock, which others look at meanwhile.
  alignas(line_bytes) std::uint64_t last_turn;
  // The call that is first in line for seats: of which team, and its number; null if none is.
  std::atomic<std::uint64_t> waiting_direct;
  std::atomic<std::int64_t> waiting_team;
  std::bitset<most_teams> busy;
};

/// Taken, unless its holder died. It is held for microseconds, but its holder may have been put aside meanwhile for as long as the system
/// likes.
class Board::Lock {
 public:
  enum class Patience : std::uint8_t { one_look, until_taken };

  explicit Lock(const Board& board, Patience patience = Patience::until_taken) noexcept : word_(board.table_->lock) {
    const auto mine = static_cast<std::uint32_t>(board.local_rank_) + 1;
    constexpr unsigned before_yield = 128, before_look = 128 * before_yield;
    for (unsigned tries = 1;; ++tries) {
      std::uint32_t holder = word_.load(std::memory_order_relaxed);
      taken_ = holder == 0 &&
               word_.compare_exchange_strong(holder, mine, std::memory_order_acquire, std::memory_order_relaxed);
      if (taken_ || patience == Patience::one_look) return;
      if (tries % before_yield == 0) sched_yield();
      if (tries % before_look == 0 && board.holder_died(holder)) return;
    }
  }
  ~Lock() {
    if (taken_) word_.store(0, std::memory_order_release);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  explicit operator bool() const noexcept { return taken_; }

 private:
  std::atomic<std::uint32_t>& word_;
  bool taken_ = false;
};

namespace {

constexpr std::uint64_t for_ever = ~std::uint64_t{0};

// The memory is zero and shared: objects are not constructed in it, they are there already, for every process.
template <class T>
T* at(std::byte* memory) noexcept {
  return std::launder(reinterpret_cast<T*>(memory));
}

[[noreturn]] void fail_for_dead_holder() {
  throw base::Error(base::ErrorClass::other,
                    "a rank of the node died in the middle of a change of the node's table of communicators");
}

}  // namespace

TeamPlace::Member& TeamPlace::member(int which) const noexcept { return first_[which]; }

bool TeamPlace::whole() const noexcept { return slot_->came.load(std::memory_order_acquire) == members_; }

void TeamPlace::enter(std::uint64_t sequence) const noexcept {
  member(me_).entered.word.store(sequence, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void TeamPlace::ask_from(std::uint64_t sequence) const noexcept {
  member(me_).entered.unasked_until.store(sequence, std::memory_order_release);
}

void TeamPlace::ask_no_more(std::uint64_t sequence) const noexcept {
  auto& mine = member(me_).entered;
  const std::uint64_t until = mine.unasked_until.load(std::memory_order_relaxed);
  bool all_past = true;
  for (int other = 0; other < members_; ++other)
    all_past = all_past && entered(other).load(std::memory_order_acquire) >= until;
  // Before `from`: between the two the range is too large, never too small.
  mine.unasked_until.store(for_ever, std::memory_order_release);
  if (all_past) mine.unasked_from.store(sequence, std::memory_order_release);
  slot_->lapses.fetch_add(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::uint64_t TeamPlace::lapses() const noexcept { return slot_->lapses.load(std::memory_order_acquire); }

const std::atomic<std::uint64_t>& TeamPlace::entered(int which) const noexcept { return member(which).entered.word; }

bool TeamPlace::somebody_unasked(std::uint64_t sequence) const noexcept {
  for (int other = 0; other < members_; ++other) {
    if (other == me_) continue;
    const auto& theirs = member(other).entered;
    if (theirs.word.load(std::memory_order_acquire) < sequence) continue;
    // Further on it may ask already; what counts is whether it did at this call.
    if (theirs.unasked_until.load(std::memory_order_acquire) > sequence &&
        theirs.unasked_from.load(std::memory_order_acquire) <= sequence)
      return true;
  }
  return false;
}

bool TeamPlace::everybody_asks(std::uint64_t sequence) const noexcept {
  for (int other = 0; other < members_; ++other)
    if (member(other).entered.unasked_until.load(std::memory_order_acquire) > sequence) return false;
  return true;
}

std::uint64_t TeamPlace::clear_until() const noexcept {
  std::uint64_t last = for_ever;
  for (int other = 0; other < members_; ++other) {
    if (other == me_) continue;
    last = std::min(last, entered(other).load(std::memory_order_acquire) + ring - 1);
  }
  return last;
}

int TeamPlace::laggard(std::uint64_t sequence) const noexcept {
  int found = -1;
  for (int other = 0; sequence >= ring && other < members_ && found < 0; ++other)
    if (other != me_ && entered(other).load(std::memory_order_acquire) < reached_by_laggard(sequence)) found = other;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return found;
}

Verdict TeamPlace::claim(std::uint64_t sequence, Verdict wish) const noexcept {
  std::atomic<std::uint64_t>& verdict = slot_->verdict[sequence % ring];
  const std::uint64_t mine = 4 * sequence + static_cast<std::uint64_t>(wish);
  std::uint64_t found = verdict.load(std::memory_order_acquire);
  while (found / 4 < sequence) {
    if (verdict.compare_exchange_weak(found, mine, std::memory_order_acq_rel, std::memory_order_acquire)) return wish;
  }
  return static_cast<Verdict>(found % 4);
}

Arrival& TeamPlace::own_arrival(std::uint64_t direct) const noexcept { return member(me_).arrival[direct % 2]; }

const Arrival& TeamPlace::arrival(int which, std::uint64_t direct) const noexcept {
  return member(which).arrival[direct % 2];
}

void TeamPlace::arrive(std::uint64_t direct, Excuse excuse) const noexcept {
  auto& mine = member(me_).arrived;
  mine.excuse[direct % 2] = excuse;
  mine.word.store(direct, std::memory_order_release);
}

// One look at each, so that the looks, which other processors have to answer, run side by side.
bool TeamPlace::all_arrived(std::uint64_t direct) const noexcept {
  bool all = true;
  for (int other = 0; other < members_; ++other) all &= arrived(other).load(std::memory_order_acquire) >= direct;
  return all;
}

Excuse TeamPlace::excuse(int which, std::uint64_t direct) const noexcept {
  return member(which).arrived.excuse[direct % 2];
}

const std::atomic<std::uint64_t>& TeamPlace::arrived(int which) const noexcept { return member(which).arrived.word; }

void TeamPlace::finish(std::uint64_t direct) const noexcept {
  member(me_).finished.word.store(direct, std::memory_order_release);
}

const std::atomic<std::uint64_t>& TeamPlace::finished(int which) const noexcept { return member(which).finished.word; }

void TeamPlace::show_remains(bool any) const noexcept {
  member(me_).finished.remains.store(any, std::memory_order_release);
}

bool TeamPlace::has_remains(int which) const noexcept {
  return member(which).finished.remains.load(std::memory_order_acquire);
}

std::optional<std::uint64_t> TeamPlace::turn(std::uint64_t direct) const noexcept {
  if (slot_->turned.load(std::memory_order_acquire) < direct) return std::nullopt;
  return slot_->turn[direct % 2].load(std::memory_order_relaxed);
}

Entry& TeamPlace::own_entry() const noexcept { return member(me_).entry; }

const Entry& TeamPlace::entry(int which) const noexcept { return member(which).entry; }

void TeamPlace::show_region(Region region, bool turns, const EventHandles& events) const noexcept {
  Member& mine = member(me_);
  mine.window.region = region;
  mine.window.turns = turns ? 1 : 0;
  mine.events = events;
}

bool TeamPlace::takes_turns(int which) const noexcept { return member(which).window.turns != 0; }

const EventHandles& TeamPlace::events(int which) const noexcept { return member(which).events; }

void TeamPlace::show_matched(std::uint32_t bits) const noexcept {
  member(me_).window.matched.fetch_or(bits, std::memory_order_release);
}

bool TeamPlace::everybody_matched(std::uint32_t bits) const noexcept {
  for (int which = 0; which < members_; ++which)
    if ((member(which).window.matched.load(std::memory_order_acquire) & bits) != bits) return false;
  return true;
}

void TeamPlace::show_abilities(std::uint32_t abilities) const noexcept { member(me_).window.abilities = abilities; }

std::uint32_t TeamPlace::common_abilities() const noexcept {
  std::uint32_t common = ~std::uint32_t{0};
  for (int which = 0; which < members_; ++which) common &= member(which).window.abilities;
  return common;
}

// Not by another thread that has begun before.
void TeamPlace::show_ready(Ready ready) const noexcept {
  auto& shown = member(me_).window.ready;
  for (Ready now = shown.load(std::memory_order_relaxed); now != Ready::never;)
    if (shown.compare_exchange_weak(now, ready, std::memory_order_release, std::memory_order_relaxed)) return;
}

Ready TeamPlace::ready(int which) const noexcept { return member(which).window.ready.load(std::memory_order_acquire); }

Region TeamPlace::region(int which) const noexcept { return member(which).window.region; }

void TeamPlace::withdraw() const noexcept {
  show_ready(Ready::never);
  slot_->lapses.fetch_add(1, std::memory_order_release);
}

bool TeamPlace::all_ready(Ready degree) const noexcept {
  for (int which = 0; which < members_; ++which) {
    const Ready now = ready(which);
    if (now < degree || now == Ready::never) return false;
  }
  return true;
}

namespace {

int board_members(int ranks) noexcept { return std::min(ranks, Board::most_members); }

// Of both parities, in whole lines.
std::size_t passages_bytes(std::size_t members) noexcept {
  return (2 * members * members * sizeof(Passage) + line_bytes - 1) / line_bytes * line_bytes;
}

}  // namespace

std::size_t Board::slot_bytes(int ranks) noexcept {
  const auto members = static_cast<std::size_t>(board_members(ranks));
  return sizeof(TeamPlace::Slot) + members * sizeof(TeamPlace::Member) + passages_bytes(members);
}

std::size_t Board::bytes_for(int ranks) noexcept {
  return sizeof(Table) + static_cast<std::size_t>(ranks) * sizeof(WindowRecord) + most_teams * slot_bytes(ranks);
}

Board::Board(const Directory& directory, int local_rank)
    : directory_(directory),
      team_members_(board_members(directory.ranks())),
      local_rank_(local_rank),
      table_(at<Table>(directory.board().data())),
      windows_(at<WindowRecord>(directory.board().data() + sizeof(Table))),
      slots_(directory.board().data() + sizeof(Table) +
             static_cast<std::size_t>(directory.ranks()) * sizeof(WindowRecord)),
      slot_bytes_(slot_bytes(directory.ranks())) {
  if (directory.board().size() < bytes_for(directory.ranks())) {
    throw base::Error(base::ErrorClass::intern, "the board needs {} bytes, there are {}", bytes_for(directory.ranks()),
                      directory.board().size());
  }
}

TeamPlace::Slot& Board::slot(int index) const noexcept {
  return *at<TeamPlace::Slot>(slots_ + static_cast<std::size_t>(index) * slot_bytes_);
}

TeamPlace::Member* Board::members_of(int index) const noexcept {
  return at<TeamPlace::Member>(slots_ + static_cast<std::size_t>(index) * slot_bytes_ + sizeof(TeamPlace::Slot));
}

Passage* Board::passages_of(int index) const noexcept {
  return at<Passage>(reinterpret_cast<std::byte*>(members_of(index) + team_members_));
}

// Who has died after it gave the lock back stands there no more.
bool Board::holder_died(std::uint32_t holder) const noexcept {
  return holder != 0 && !directory_.alive(static_cast<int>(holder) - 1) &&
         table_->lock.load(std::memory_order_relaxed) == holder;
}

std::optional<TeamPlace> Board::join(const TeamKey& key, int members, int me) noexcept {
  if (members > team_members_) return std::nullopt;
  const Lock lock(*this);
  if (!lock) return std::nullopt;
  int free = -1;
  for (int index = 0; index < most_teams; ++index) {
    TeamPlace::Slot& candidate = slot(index);
    if (candidate.members == 0) {
      if (free < 0) free = index;
    } else if (candidate.key == key && candidate.members == members) {
      ++candidate.joined;
      members_of(index)[me].window.local_rank = local_rank_;
      candidate.came.fetch_add(1, std::memory_order_seq_cst);
      std::atomic_thread_fence(std::memory_order_seq_cst);  // before this member looks at what the others entered
      return TeamPlace{&candidate, members_of(index), passages_of(index), members, me};
    }
  }
  if (free < 0) return std::nullopt;
  TeamPlace::Slot& made = slot(free);
  for (auto& verdict : made.verdict) verdict.store(0, std::memory_order_relaxed);
  made.lapses.store(0, std::memory_order_relaxed);
  made.turned.store(0, std::memory_order_relaxed);
  made.blocks = 0;
  table_->busy.reset(static_cast<std::size_t>(free));
  for (int which = 0; which < team_members_; ++which) {
    TeamPlace::Member& member = members_of(free)[which];
    member.entered.word.store(0, std::memory_order_relaxed);
    member.entered.unasked_from.store(0, std::memory_order_relaxed);
    member.entered.unasked_until.store(for_ever, std::memory_order_relaxed);
    member.arrived.word.store(0, std::memory_order_relaxed);
    member.finished.word.store(0, std::memory_order_relaxed);
    member.finished.remains.store(false, std::memory_order_relaxed);
    member.window.ready.store(Ready::no, std::memory_order_relaxed);
    member.window.matched.store(0, std::memory_order_relaxed);
    for (std::size_t level = 0; level < Entry::levels; ++level) {
      member.entry.given[level].store(0, std::memory_order_relaxed);
      member.entry.complete[level].store(0, std::memory_order_relaxed);
    }
    member.entry.failed.store(0, std::memory_order_relaxed);
    member.entry.culprit.store(0, std::memory_order_relaxed);
  }
  members_of(free)[me].window.local_rank = local_rank_;
  made.key = key;
  made.members = members;
  made.joined = 1;
  made.came.store(1, std::memory_order_seq_cst);
  return TeamPlace{&made, members_of(free), passages_of(free), members, me};
}

void Board::leave(const TeamPlace& place) noexcept {
  const Lock lock(*this);
  if (!lock) return;
  TeamPlace::Slot& left = *place.slot_;
  --left.joined;
  // A member that never came may still make the team anew: it is then never whole, and its calls go to MPI unasked.
  if (left.joined == 0) left.members = 0;
}

int Board::take_seats(const Uuid& gpu, std::uint32_t all) {
  const Lock lock(*this);
  // Two ranks of one GPU could each count its seats.
  if (!lock) fail_for_dead_holder();
  for (int rank = 0; rank < directory_.ranks(); ++rank) {
    if (windows_[rank].counted.all != 0 && windows_[rank].counted.gpu == gpu) return rank;
  }
  Seats& own = windows_[local_rank_].counted;
  own.gpu = gpu;
  own.all = all;
  return local_rank_;
}

std::uint32_t Board::fewest_seats(std::span<const int> local_ranks) const noexcept {
  std::uint32_t fewest = std::numeric_limits<std::uint32_t>::max();
  for (const int rank : local_ranks) fewest = std::min(fewest, windows_[windows_[rank].seats].counted.all);
  return fewest;
}

bool Board::keep_lines_whole(std::span<const int> local_ranks) const noexcept {
  // What one of two does not see the other one may.
  const auto joined = [&](const WindowRecord& a, const WindowRecord& b) {
    return a.gpu != b.gpu &&
           ((a.links.on_switch != 0 && b.links.on_switch != 0) || a.links.join(b.gpu) || b.links.join(a.gpu));
  };
  for (std::size_t i = 0; i < local_ranks.size(); ++i)
    for (const int rank : local_ranks.subspan(i + 1))
      if (!joined(windows_[local_ranks[i]], windows_[rank])) return false;
  return true;
}

void Board::set_seats_aside(std::uint32_t blocks) noexcept {
  windows_[own_window().seats].counted.set_aside.fetch_add(blocks, std::memory_order_relaxed);
}
void Board::take_seats_back(std::uint32_t blocks) noexcept {
  windows_[own_window().seats].counted.set_aside.fetch_sub(blocks, std::memory_order_relaxed);
}
bool Board::reserve_half() noexcept {
  return windows_[own_window().seats].counted.half.exchange(1, std::memory_order_relaxed) == 0;
}
void Board::give_half_back() noexcept { windows_[own_window().seats].counted.half.store(0, std::memory_order_relaxed); }

int Board::index_of(const TeamPlace& place) const noexcept {
  return static_cast<int>(static_cast<std::size_t>(reinterpret_cast<std::byte*>(place.slot_) - slots_) / slot_bytes_);
}

bool Board::seats_free(int team, std::span<const int> seats, std::uint32_t blocks) noexcept {
  // Of the team itself nothing runs any more that keeps anybody waiting: all have arrived at its next call.
  std::bitset<most_teams> others = table_->busy;
  others.reset(static_cast<std::size_t>(team));
  if (others.none()) return true;
  std::array<std::uint32_t, most_members> used{};  // by member of this team
  for (int index = 0; index < most_teams; ++index) {
    if (!others[static_cast<std::size_t>(index)]) continue;
    const TeamPlace::Slot& other = slot(index);
    const std::uint64_t turned = other.turned.load(std::memory_order_relaxed);
    bool over = true;
    for (int which = 0; which < other.members; ++which) {
      if (members_of(index)[which].finished.word.load(std::memory_order_acquire) >= turned) continue;
      over = false;
      for (std::size_t mine = 0; mine < seats.size(); ++mine)
        if (seats[mine] == other.seats[static_cast<std::size_t>(which)]) used[mine] += other.blocks;
    }
    if (over) table_->busy.reset(static_cast<std::size_t>(index));
  }
  for (std::size_t mine = 0; mine < seats.size(); ++mine) {
    const auto sharers = static_cast<std::uint32_t>(std::ranges::count(seats, seats[mine]));
    const Seats& there = windows_[seats[mine]].counted;
    const std::uint32_t set_aside = there.set_aside.load(std::memory_order_relaxed);
    // Alone among those that ask, a call is never too large.
    if (used[mine] != 0 && used[mine] + sharers * blocks + set_aside > there.all) return false;
  }
  return true;
}

// Members that died never finish what others wait for: this does it for them. True if that may have made room, or the first in line has gone.
bool Board::finish_for_dead() noexcept {
  bool found = false;
  const std::uint64_t waiting = table_->waiting_direct.load(std::memory_order_relaxed);
  const std::int64_t first = waiting == 0 ? -1 : table_->waiting_team.load(std::memory_order_relaxed);
  for (int index = 0; index < most_teams; ++index) {
    if (!table_->busy[static_cast<std::size_t>(index)] && index != first) continue;
    const TeamPlace::Slot& team = slot(index);
    std::uint64_t last = team.turned.load(std::memory_order_relaxed);
    if (index == first) last = std::max(last, waiting);
    bool over = true;
    for (int which = 0; which < team.members; ++which) {
      TeamPlace::Member& member = members_of(index)[which];
      if (member.finished.word.load(std::memory_order_acquire) >= last) continue;
      if (directory_.alive(member.window.local_rank)) {
        over = false;
      } else {
        member.finished.word.store(for_ever, std::memory_order_release);
        found = true;
      }
    }
    // Of those that live each asks for its turn, or has forgone it: maybe before a dead one made it the first.
    if (index == first && over) {
      table_->waiting_direct.store(0, std::memory_order_relaxed);
      found = true;
    }
  }
  return found;
}

bool Board::first_in_line(int team, std::uint64_t direct) const noexcept {
  const std::uint64_t waiting = table_->waiting_direct.load(std::memory_order_relaxed);
  return waiting == 0 || (waiting == direct && table_->waiting_team.load(std::memory_order_relaxed) == team);
}

bool Board::give_turn(const TeamPlace& place, std::uint64_t direct, std::span<const int> seats, std::uint32_t blocks) {
  if (place.turn(direct)) return true;
  // Whoever holds the lock may be giving this very turn: better look again than wait.
  const Lock lock(*this, Lock::Patience::one_look);
  if (!lock && asks_for_holder_.due() && holder_died(table_->lock.load(std::memory_order_relaxed)) &&
      !place.turn(direct))
    fail_for_dead_holder();
  if (!lock || place.turn(direct)) return place.turn(direct).has_value();
  const int team = index_of(place);
  const auto fits = [&] { return first_in_line(team, direct) && seats_free(team, seats, blocks); };
  if (!fits() && !(asks_for_members_.due() && finish_for_dead() && fits())) {
    if (first_in_line(team, direct)) {
      table_->waiting_team.store(team, std::memory_order_relaxed);
      table_->waiting_direct.store(direct, std::memory_order_relaxed);
    }
    return false;
  }
  table_->waiting_direct.store(0, std::memory_order_relaxed);
  table_->busy.set(static_cast<std::size_t>(team));
  TeamPlace::Slot& mine = *place.slot_;
  if (mine.blocks == 0) std::ranges::copy(seats, mine.seats.begin());
  mine.blocks = blocks;
  mine.turn[direct % 2].store(++table_->last_turn, std::memory_order_relaxed);
  mine.turned.store(direct, std::memory_order_release);
  return true;
}

void Board::forgo_turn(const TeamPlace& place, std::uint64_t direct) noexcept {
  const auto waits = [&] {
    return table_->waiting_direct.load(std::memory_order_relaxed) == direct &&
           table_->waiting_team.load(std::memory_order_relaxed) == index_of(place);
  };
  if (!waits()) return;
  const Lock lock(*this);
  if (lock && waits()) table_->waiting_direct.store(0, std::memory_order_relaxed);
}

}  // namespace crosslane::share
