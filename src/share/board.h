// Board: the node's table of teams (communicators whose ranks share the node) in shared memory: which way a call goes, who has
// arrived at it, and where its members' windows are. It must not know MPI, GPUs, nor what a collective does.
//
// Every member numbers its collectives on a communicator from 1 (the sequence); they are the same calls on all members.
//
// States, and who may change them:
//
//   entered of a member     s                by that member alone when it comes to call s; never falls. Then stands a sequentially
//                                            consistent fence, as between the writes that it looks at and their writers' look
//                                            here: of two that do so at once, at least one sees the other.
//   unasked of a member     [from, until)    by that member alone: calls to which it may have gone without asking for a verdict, by
//                                            MPI. At first all: while no device was seen on the node, and not all members have
//                                            come to the board.
//                           until -> s       ... it has entered call s, and asks in it and in those that follow
//                           until -> all     ... it has entered call s and may not wait for a member that is so far behind that the
//                                            verdict cannot be written (a call that is only started): from there on it may not
//                                            ask again. Then come the fence and another look at who is behind: whoever finds
//                                            nobody behind after another fence sees this range.
//                           from -> s        ... just then, if all have entered `until`, so that nobody looks at calls before;
//                                            else the range grows over calls in which it did ask. That does no harm: of these the
//                                            verdict stands, or is staged whoever writes it.
//   lapses of a team        n -> n + 1       by each member when its range grows so, before the fence: who knows that all ask, and
//                                            since when there were no more lapses, need not look at all members
//   came of a team          n -> n + 1       by each member when it joins; a team is whole once all have come
//   verdict of call s       open -> staged   by the first member that asks; compare-and-swap from a verdict of a call that all
//                           open -> direct   members are past, so that the ring is never overrun. All obey.
//                           open -> asking
//   matched of a member     + bits           by that member alone, with release, once it knows what calls of that kind have to know; never
//                                            fall. Who sees all members' may wish for a direct one: each of them knows.
//   arrived of a member     d                by that member alone, with release, once its arrival record for the d-th direct call
//                                            is written, and its excuse. Records lie by d's parity: who writes record d + 2 has seen all arrive
//                                            at d + 1, hence all are done with d.
//                                            Passages lie beside the records and are written and read like them.
//   finished of a member    d                by that member alone, with release, when its d-th direct call is over: it reads no
//                                            window of others before call d + 1. Who leaves the team waits for it.
//                           d -> all         under the lock, by who finds that the member's process has ended in a call with a turn: its kernels
//                                            have, too
//   remains of a member     no -> yes        by that member alone, before it finishes a direct call that failed, and of which something that its GPU has
//                                            not ended may still write to members' regions: who leaves the team uses its own for nothing else
//                           yes -> no        by that member alone, with release, once its GPU has
//   ready of a member       0 -> 1 region    by that member alone, with release, after its region is written
//                           1 -> 2 mapped    ... after it can reach every other member's region
//                           any -> 3 never   ... when it finds that it cannot take part, or can no more (a lapse); the reason is said by it
//                                            Who has no memory for the next step stays as it is, and tries again in a later call.
//   given, complete of a member, by level   ... -> step   by that member alone in a host-driven call (steps.h), with release, after it
//                                            recorded its event of that step on its stream. Who sees the step and then has a stream
//                                            wait for the event is ordered after what the step tells of. Steps only grow: the
//                                            call's number is in them, so that no call takes another one's flag for its own.
//   failed of a member      0 -> d           by that member alone, with release, when call d failed there: others look while they wait
//   abilities of a member   0 -> bits        by that member alone, before it is ready as `mapped`
//   turn of call d          none -> t        by the first member that finds that all have arrived at d and that its blocks fit (seats);
//                                            under the lock. Turns of the node's teams grow: who sees a turn sees all lower ones.
//                                            Every process starts its calls in the order of their turns. Lies by d's parity.
//   blocks of a team        b' -> b          under the lock, with the turn of a call that keeps b blocks of each member's GPU resident. They
//                                            count there until the member has finished that call: never less than what is resident, but
//                                            for kernels that stay for the team's next call (kernel/lingering.h): those of a team are gone
//                                            within a bounded time, and nobody needs them to get on, for a call that is rung for has a turn
//   busy of a team          no -> yes        under the lock, with a turn
//                           yes -> no        under the lock, by who finds that all members have finished the last call with a turn, or makes
//                                            the team anew. So a call of the only team that is busy need not look at any GPU's seats
//   first in line           none -> call     under the lock, when a call's blocks do not fit: no other gets a turn before it
//                           call -> none     ... with its turn, or when it ends without one; or by who finds that all members have finished
//                                            it, or died in it
//   lock of the table       0 -> 1 + rank    by whoever joins, leaves, or gives a turn; held for a few microseconds: at most 256 comparisons, and
//                                            looks at the members of teams that are busy. It is waited for as long as its holder lives, however
//                                            long the system puts that aside; who only gives a turn looks again later. One whose holder
//                                            died stays so: what is in the table nobody knows
#pragma once

#include "base/clock.h"
#include "share/directory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::share {

/// Names a communicator within a job, equal on all its ranks.
using TeamKey = std::array<std::uint64_t, 2>;

/// `asking`: by MPI, and each member asks the MPI beside it what direct calls like this one have to know.
enum class Verdict : std::uint64_t { open, staged, direct, asking };
enum class Ready : std::uint64_t { no, region, mapped, never };

/// By which another process opens memory of this one: what a driver gives for it, opaque here.
using MemoryHandle = std::array<std::byte, 64>;

/// Thread blocks that the GPU runs at once: calls under way keep some of them until their peers' have come. In the record of the first
/// rank that came with that GPU; what is not atomic under the board's lock.
struct Seats {
  Uuid gpu;
  std::uint32_t all;                     ///< 0: not of this record.
  std::atomic<std::uint32_t> set_aside;  ///< For calls that are enqueued on streams, which ask nobody.
  std::atomic<std::uint32_t> half;       ///< 1: one communicator's of these may keep half of all.
};

/// Which other GPUs this one's links join it to such that lines of 128 bytes stay whole on their way.
struct Links {
  static constexpr std::size_t most_joined = 15;
  std::uint32_t on_switch;  ///< 1: to whatever else hangs on a switch, seen by its rank or not.
  std::uint32_t joined;     ///< To so many by themselves, of those that its rank sees.
  std::array<Uuid, most_joined> to;

  [[nodiscard]] bool join(const Uuid& gpu) const noexcept {
    const auto known = std::span(to).first(joined);
    return std::ranges::find(known, gpu) != known.end();
  }
};

/// Where a part of a rank's window lies, such as a member's region of a team.
struct Region {
  std::uint64_t segment, offset;
};

/// What a rank opens to the others of its node: library-owned segments, in the order of their making, and which of the
/// application's allocations that it showed last (Exposed) still live: mappings of others are to be closed (exposure.h).
struct alignas(line_bytes) WindowRecord {
  static constexpr std::size_t most_segments = 9;  ///< One of them for messages.
  static constexpr std::size_t most_shown = 512;
  std::atomic<std::uint32_t> segments;  ///< How many are valid: stored with release after their rows.
  Uuid gpu;                             ///< Valid with the first segment.
  std::int32_t seats;                   ///< Which rank's record has this GPU's; valid with the first segment.
  Links links;                          ///< Valid with the first segment.
  std::array<MemoryHandle, most_segments> segment;
  Seats counted;
  /// Where the window for large reductions lies, once `large_shown` is 1: stored with release after it.
  Region large;
  std::atomic<std::uint32_t> large_shown;
  /// Memory that others open to learn whether they can open this rank's at all; valid once `door_shown` is 1: stored with release
  /// after it.
  MemoryHandle door;
  std::atomic<std::uint32_t> door_shown;
  /// Grows by two with each change of what follows, which its owner makes while it is odd; who reads sees the same even number before and
  /// after, or has read nothing.
  alignas(line_bytes) std::atomic<std::uint64_t> version;
  std::array<std::atomic<std::uint64_t>, most_shown> shown;  ///< Ids of living allocations; 0: none.
  std::atomic<std::uint64_t>
      evicted;  ///< How many went for want of a slot, alive: they may be shown again. Others never are.
};

/// One buffer as its owner shows it for one call. A buffer that nobody else may open has no `id`.
struct Exposed {
  std::uint64_t id;      ///< Of the allocation, unique in the owner's process; 0: not open to others.
  std::uint64_t offset;  ///< Of the buffer from the start of the allocation.
  MemoryHandle handle;
};

/// Why a member that arrives at a direct call does not take part in it; worse ones are greater.
enum class Excuse : std::uint64_t {
  none,
  unmatched,  ///< It does not know which of several edges to it is which: all go to MPI.
  withdrawn,  ///< It takes part no more (Team::withdraw): all go to MPI.
  failed      ///< It could not begin, and has told so: the call fails on all.
};

struct alignas(line_bytes) Arrival {
  Exposed send, receive;
  std::array<std::uint64_t, 8> facts;  ///< The collective's own: equal meaning on all members.
  std::uint64_t large_windows;         ///< 1: this member has mapped all others' windows for large reductions.
  std::array<std::uint64_t, 4> claim;  ///< The same, of what the member was called with; only where members compare it.
};

/// What goes between a member and one other in a direct call whose blocks differ, as the member shows it along with its Arrival.
struct Passage {
  std::uint64_t sends, receives;  ///< Bytes to the other one, and from it.
  std::uint64_t place;            ///< Where what it receives belongs, in bytes from the buffer that it shows.
};

/// A member's entry in the directory of host-driven collectives (COLL, 4.1.1): what it gave to its parent, and what it completed for
/// its children, on each level of the hierarchy; see the states.
struct alignas(line_bytes) Entry {
  static constexpr std::size_t levels = 2;
  std::array<std::atomic<std::uint64_t>, levels> given;
  std::array<std::atomic<std::uint64_t>, levels> complete;
  /// The last direct call, whoever drives it, in which this member failed.
  std::atomic<std::uint64_t> failed;
  std::atomic<std::int32_t>
      culprit;  ///< The member that failed first, as far as this one knows; written before `failed`.
};

/// What a member's GPU allows, or holds of the member; the team may use what holds of all.
enum Ability : std::uint32_t {
  spins = 1,   ///< Kernels may wait for other members' kernels: they run at the same time.
  drives = 2,  ///< Streams may wait for the other members' events.
  single_edges =
      4,  ///< In the communicator's topology, if it has one, no two edges of this member go from one rank to one other.
  whole_lines =
      8,  ///< What threads store at once into a line of 128 bytes of another member's GPU comes there at once.
};

/// The events of a member that others open, by a step's parity.
using EventHandles = std::array<MemoryHandle, 2>;

class Board;

/// A team's place on the board, as one member sees it. Trivially copied; valid until that member leaves it.
class TeamPlace {
 public:
  static constexpr std::uint64_t ring = 64;  ///< Calls that one member may be ahead of another.

  TeamPlace() = default;
  [[nodiscard]] int members() const noexcept { return members_; }
  [[nodiscard]] int me() const noexcept { return me_; }

  /// This member comes to call `sequence`. Followed by a fence.
  void enter(std::uint64_t sequence) const noexcept;
  /// It asks for a verdict in this call, which it entered, and from now on.
  void ask_from(std::uint64_t sequence) const noexcept;
  /// It may not ask in this call, which it entered, nor in those that follow. Followed by a fence.
  void ask_no_more(std::uint64_t sequence) const noexcept;
  /// Grows with each member that asks no more, or withdraws.
  [[nodiscard]] std::uint64_t lapses() const noexcept;
  /// True once every member has joined; then it stays so.
  [[nodiscard]] bool whole() const noexcept;
  /// True if some member may have come to call `sequence` without asking: then it is in MPI, and so must all be.
  [[nodiscard]] bool somebody_unasked(std::uint64_t sequence) const noexcept;
  /// True if every member asks in call `sequence`, and in all later ones until there is another lapse.
  [[nodiscard]] bool everybody_asks(std::uint64_t sequence) const noexcept;
  /// A member that is so far behind that the verdict of `sequence` cannot be written yet; -1 if there is none. Followed by a fence.
  [[nodiscard]] int laggard(std::uint64_t sequence) const noexcept;
  /// The last call whose verdict can be written whatever the other members do.
  [[nodiscard]] std::uint64_t clear_until() const noexcept;
  /// What `laggard` must reach.
  [[nodiscard]] static std::uint64_t reached_by_laggard(std::uint64_t sequence) noexcept { return sequence - ring + 1; }
  [[nodiscard]] const std::atomic<std::uint64_t>& entered(int member) const noexcept;
  /// The verdict of the call: the wish of the first that asks. Only while there is no laggard.
  [[nodiscard]] Verdict claim(std::uint64_t sequence, Verdict wish) const noexcept;

  /// This member's record of its direct call number `direct` (from 1), to be written before arrive().
  [[nodiscard]] Arrival& own_arrival(std::uint64_t direct) const noexcept;
  /// A member's, once arrived(member) is at least `direct`.
  [[nodiscard]] const Arrival& arrival(int member, std::uint64_t direct) const noexcept;
  /// The same of its passages, one for each member: what stands there is of the last such call of that parity.
  [[nodiscard]] std::span<Passage> own_passages(std::uint64_t direct) const noexcept {
    return passages_of(me_, direct);
  }
  [[nodiscard]] std::span<const Passage> passages(int member, std::uint64_t direct) const noexcept {
    return passages_of(member, direct);
  }
  void arrive(std::uint64_t direct, Excuse excuse = Excuse::none) const noexcept;
  [[nodiscard]] const std::atomic<std::uint64_t>& arrived(int member) const noexcept;
  [[nodiscard]] bool all_arrived(std::uint64_t direct) const noexcept;
  /// Why a member takes no part in the direct call that it has arrived at.
  [[nodiscard]] Excuse excuse(int member, std::uint64_t direct) const noexcept;
  /// This member's direct call number `direct` is over; also where it failed.
  void finish(std::uint64_t direct) const noexcept;
  /// Of this member's direct calls that are over something may still be on its GPU, or nothing any more.
  void show_remains(bool any) const noexcept;
  [[nodiscard]] bool has_remains(int member) const noexcept;
  /// The turn of the direct call; nothing before it has one (Board::give_turn). To be asked before this member's next arrive().
  [[nodiscard]] std::optional<std::uint64_t> turn(std::uint64_t direct) const noexcept;
  [[nodiscard]] const std::atomic<std::uint64_t>& finished(int member) const noexcept;

  [[nodiscard]] Entry& own_entry() const noexcept;
  [[nodiscard]] const Entry& entry(int member) const noexcept;

  /// Before `region` is shown as ready. `turns`: kernels of this member's GPU take turns with those of other processes.
  void show_region(Region region, bool turns, const EventHandles& events) const noexcept;
  [[nodiscard]] bool takes_turns(int member) const noexcept;
  [[nodiscard]] const EventHandles& events(int member) const noexcept;
  /// This member knows what calls of these kinds have to know: a bit each, the team's affair.
  void show_matched(std::uint32_t bits) const noexcept;
  /// True if all members know.
  [[nodiscard]] bool everybody_matched(std::uint32_t bits) const noexcept;
  /// Before this member is `mapped`.
  void show_abilities(std::uint32_t abilities) const noexcept;
  /// What all members can; once all are `mapped`.
  [[nodiscard]] std::uint32_t common_abilities() const noexcept;
  /// What is shown as `never` stays so.
  void show_ready(Ready ready) const noexcept;
  /// This member, which may have been ready, takes part no more.
  void withdraw() const noexcept;
  [[nodiscard]] Ready ready(int member) const noexcept;
  [[nodiscard]] Region region(int member) const noexcept;
  /// True if every member is ready in that degree, and none never.
  [[nodiscard]] bool all_ready(Ready degree) const noexcept;

 private:
  friend class Board;
  struct Member;
  struct Slot;
  TeamPlace(Slot* slot, Member* first, Passage* passages, int members, int me) noexcept
      : slot_(slot), first_(first), passages_(passages), members_(members), me_(me) {}
  [[nodiscard]] Member& member(int which) const noexcept;
  [[nodiscard]] std::span<Passage> passages_of(int which, std::uint64_t direct) const noexcept {
    const auto row = static_cast<std::size_t>(which) * 2 + direct % 2;
    const auto length = static_cast<std::size_t>(members_);
    return {passages_ + row * length, length};
  }

  Slot* slot_ = nullptr;
  Member* first_ = nullptr;
  Passage* passages_ = nullptr;  // by member, parity, and the other member
  int members_ = 0;
  int me_ = 0;
};

class Board {
 public:
  static constexpr int most_teams = 256;
  static constexpr int most_members = 32;  ///< Of one team; larger ones are not on the board.

  [[nodiscard]] static std::size_t bytes_for(int ranks) noexcept;

  /// In a directory, which must outlive it, with at least bytes_for() its ranks there, as its rank `local_rank` sees it.
  Board(const Directory& directory, int local_rank);

  /// The team of that key, made by its first member. Nothing where there is no room (or a rank died while it changed the table):
  /// without this member the team is never whole.
  [[nodiscard]] std::optional<TeamPlace> join(const TeamKey& key, int members, int me) noexcept;
  /// Gives the place back; the last member that leaves frees it.
  void leave(const TeamPlace& place) noexcept;

  /// False if it is certain that the rank's process has ended: Directory::alive(), a system call.
  [[nodiscard]] bool alive(int local_rank) const noexcept { return directory_.alive(local_rank); }

  /// Where the seats of a GPU are counted, which has `all` of them: the rank in whose record. Before this rank shows its window.
  /// Throws Error (other) where a rank died while it changed the table.
  [[nodiscard]] int take_seats(const Uuid& gpu, std::uint32_t all);
  /// After all members arrived at the direct call, whose kernels keep `blocks` of each member's GPU until peers' kernels have come; the
  /// same on all members. True once the call has its turn; ask again later otherwise. A member keeps them until finish(), or until it
  /// dies. `seats`: by member, from the windows; the same for all calls of a team. Throws Error (other) where a rank died while it changed
  /// the table, on all members: the call never has its turn.
  [[nodiscard]] bool give_turn(const TeamPlace& place, std::uint64_t direct, std::span<const int> seats,
                               std::uint32_t blocks);
  /// The call ends without a turn: it stands in nobody's way.
  void forgo_turn(const TeamPlace& place, std::uint64_t direct) noexcept;

  /// How many seats the GPU of one of these ranks has that has fewest; once all have shown a segment.
  [[nodiscard]] std::uint32_t fewest_seats(std::span<const int> local_ranks) const noexcept;
  /// Whether such links join each of these ranks' GPUs to each other's, and none is another one's; once all have shown a segment.
  [[nodiscard]] bool keep_lines_whole(std::span<const int> local_ranks) const noexcept;
  /// Of this rank's GPU, once its seats are taken: so many are for calls on streams, or no longer. Turns are given among the others.
  void set_seats_aside(std::uint32_t blocks) noexcept;
  void take_seats_back(std::uint32_t blocks) noexcept;
  /// The right of one communicator at a time to half of them on streams. False while another one has it.
  [[nodiscard]] bool reserve_half() noexcept;
  void give_half_back() noexcept;

  /// This rank's window, for it to fill.
  [[nodiscard]] WindowRecord& own_window() noexcept { return windows_[local_rank_]; }
  [[nodiscard]] const WindowRecord& window(int local_rank) const noexcept { return windows_[local_rank]; }

 private:
  struct Table;
  class Lock;
  [[nodiscard]] static std::size_t slot_bytes(int ranks) noexcept;
  [[nodiscard]] TeamPlace::Slot& slot(int index) const noexcept;
  [[nodiscard]] int index_of(const TeamPlace& place) const noexcept;
  [[nodiscard]] bool holder_died(std::uint32_t holder) const noexcept;
  [[nodiscard]] bool first_in_line(int team, std::uint64_t direct) const noexcept;
  [[nodiscard]] bool seats_free(int team, std::span<const int> seats, std::uint32_t blocks) noexcept;
  bool finish_for_dead() noexcept;
  [[nodiscard]] TeamPlace::Member* members_of(int index) const noexcept;
  [[nodiscard]] Passage* passages_of(int index) const noexcept;

  /// For who looks all the time and has to ask the system now and then.
  class Seldom {
   public:
    /// True at first, and then once a second, for one of those who ask.
    [[nodiscard]] bool due() noexcept {
      const base::Time now = base::now();
      base::Time last = last_.load(std::memory_order_relaxed);
      return now - last >= std::chrono::seconds{1} &&
             last_.compare_exchange_strong(last, now, std::memory_order_relaxed);
    }

   private:
    std::atomic<base::Time> last_{};
  };

  const Directory& directory_;
  Seldom asks_for_holder_, asks_for_members_;
  int team_members_;
  int local_rank_;
  Table* table_;
  WindowRecord* windows_;
  std::byte* slots_;
  std::size_t slot_bytes_;
};

}  // namespace crosslane::share
