// What a kernel of a team (the ranks of a communicator that share a node) is given, and how such kernels keep in step.
// It must not know communicators, nor how memory came to be mapped.
#pragma once

#include "kernel/block.h"
#include "kernel/ending.h"

#include <cstdint>

namespace crosslane::kernel {

inline constexpr std::uint32_t most_members = 32;
inline constexpr std::uint32_t most_team_blocks = 160;

/// How many words a kernel that stays is told of a call at most, among so many members, whichever kernel it is: see lingering.h.
CROSSLANE_DEVICE constexpr std::uint32_t told_room(std::uint32_t members) { return 8 * members + 8; }

/// At the start of each member's region in its window (device memory, zeroed once at its making: that is a valid
/// Control). Own kernels write the counters, peers' kernels the flags.
struct Control {
  std::uint64_t launches;  ///< L: launches of this member that are over; equal on all members at each launch
  std::uint64_t finished;  ///< blocks of the launch under way that are done; the last one advances `launches`
  std::uint64_t low_latency_launches;  ///< how many of the launches used the LL areas: the epoch of their flags
  std::uint64_t line_launches;         ///< the same of the areas for lines
  std::uint64_t
      given_up;  ///< L + 1 where a block of launch L hit its limit: the others need not wait, nor later launches
  std::uint64_t called_off;  ///< By a peer's block that did so: L + 1 and whom it had waited for, see CalledOff
  alignas(128) std::uint64_t flags[most_team_blocks][most_members];  ///< [block][member]: 4 * L + phase (1 to 3)
  alignas(128) std::uint64_t steps[most_team_blocks][most_members];  ///< the same of pipelines: see pipelined.h
  alignas(128) std::uint64_t places[2][most_team_blocks];            ///< [L & 1][block]: what a root told, see Landing
  alignas(128) std::uint64_t parts[2][most_team_blocks][most_members];  ///< [L & 1][block][member]: see Parts
  alignas(128) Word16 told[told_room(most_members)];  ///< what block 0 of a kernel that stays passes on to the others
};

/// What a block that hits its limit tells all members, so that who comes too late to that launch stores nothing in large windows and users' buffers,
/// which may be in use for something else by then. Kernels that use these begin with a barrier(); the others write to the team's own region alone.
struct CalledOff {
  CROSSLANE_DEVICE static constexpr std::uint64_t word(std::uint64_t launch, std::uint64_t missing) {
    return (launch + 1) << member_bits | missing;
  }
  CROSSLANE_DEVICE static constexpr bool is_of(std::uint64_t word, std::uint64_t launch) {
    return word >> member_bits == launch + 1;
  }
  CROSSLANE_DEVICE static constexpr std::uint64_t missing_in(std::uint64_t word) {
    return word & ((std::uint64_t{1} << member_bits) - 1);
  }

 private:
  static constexpr unsigned member_bits = 8;
  static_assert(most_members <= 1U << member_bits);
};

/// Where a root's results belong, which the root alone knows: in one of some buffers that all members have mapped, or in none of them. Its
/// kernel tells the others', for no host hears of it: a word of a number and an offset.
struct Landing {
  static constexpr std::uint32_t most_buffers = 16;
  static constexpr std::uint64_t nowhere = 0;
  static constexpr std::uint64_t word(std::uint64_t buffer, std::uint64_t offset) {
    return (buffer + 1) << offset_bits | offset;
  }
  CROSSLANE_DEVICE static constexpr std::uint64_t buffer_in(std::uint64_t word) { return (word >> offset_bits) - 1; }
  CROSSLANE_DEVICE static constexpr std::uint64_t offset_in(std::uint64_t word) {
    return word & ((std::uint64_t{1} << offset_bits) - 1);
  }

  std::uint64_t told;                ///< by the root: word(), or `nowhere`
  std::uint64_t base[most_buffers];  ///< where the root's buffers begin, as mapped here
  /// Where it is; 0: nowhere.
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t find(std::uint64_t heard) const {
    return heard == nowhere ? 0 : base[buffer_in(heard)] + offset_in(heard);
  }

 private:
  static constexpr unsigned offset_bits = 48;
};

/// Where the members' parts of what is reduced or scattered are, in the same words. No host knows which buffers others' calls use: so each
/// kernel tells all others, and what is done follows from what all told.
struct Parts {
  static constexpr std::uint32_t room = 256;
  /// How many of the buffers can be told of among so many members.
  static constexpr std::uint32_t most_buffers(std::uint32_t members) {
    return room / members < Landing::most_buffers ? room / members : Landing::most_buffers;
  }

  std::uint64_t told;        ///< by this member: Landing::word(), or `nowhere`
  std::uint64_t base[room];  ///< [buffer][member]: where it begins, as mapped here
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t find(std::uint64_t heard, std::uint32_t member,
                                                    std::uint32_t members) const {
    return base[Landing::buffer_in(heard) * members + member] + Landing::offset_in(heard);
  }
};

struct Frame {
  std::uint32_t me, members;
  Control* control[most_members];  ///< each member's, as mapped here
  WaitLimit limit;                 ///< for each wait of the launch
  std::uint64_t* done;             ///< host-mapped word, or null: gets done_value (release, system) when all is over
  std::uint64_t done_value;
  std::uint64_t* failed;  ///< host-mapped word, or null: 1 + a member that did not come within the limit

  /// The k-th member from this one on; k is less than `members`.
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t after(std::uint32_t k) const {
    return me + k < members ? me + k : me + k - members;
  }
  /// A bit for each of the others.
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t others() const {
    return (~std::uint32_t{0} >> (most_members - members)) & ~(std::uint32_t{1} << me);
  }
};

// The state of a member's launches, as the flags and counters tell it to blocks b of its peers:
//
//   what stands there                        what it means, and what is allowed then
//   own `launches` = L                       my launch L runs. Launch L - 1 is over here: so all have started L - 1, so
//                                            all are through with L - 2, whose memory (parity L) may be written anew
//   own flags[b][p] >= 4 L + 1               p's block b runs launch L: p is through with L - 1; what p's block b wrote
//                                            before (its slices of windows, its user's buffers) may be read here
//   own flags[b][p] >= 4 L + 2, 4 L + 3      the same for what p's block b wrote, and has ended reading, before its
//                                            second and third barrier
//   own places[L & 1][b], as flags[b][root]   where the root of launch L wants its results, told along with its first barrier. The root of
//                 >= 4 L + 1                 L + 2, which writes there next, has ended L + 1: so all have started L + 1, and read this
//   own parts[L & 1][b][p], the same          where p's part of launch L is, told and overwritten in the same way
//   LL packet of launch L from p             as 4 L + 1, for block 0 and the counters alone: no other data may be read
//   own `finished` = k < blocks              k blocks of my launch are done; the last one advances `launches`
//   own `given_up` = L + 1                   a wait of launch L hit its limit: this launch ends at once, its results are
//                                            undefined, and the team is of no more use: later launches (lost()) store nothing
//                                            and tell nobody that they have come, so that whoever comes late does not take what
//                                            stands there for results, but gives up, too
//   own `called_off` of L                     a wait of some peer's launch L hit its limit: my launch L gives up as soon as it sees this, and
//                                            stores nothing where that was there before its first barrier, though all flags may be there, too.
//                                            Launch L may be over here: then this tells nothing
//
// "Is over implies that all have started" holds as each launch ends only when it has heard of every peer: through its
// first barrier, or (LL) through a packet or a token, flags[0][p] >= 4 L + 1. So memory of parity L is double-buffered
// without flags of its own. Counters live on the GPU: a graph's replays count on.

/// What a block has stored in its launch before a barrier that peers read behind it.
enum class Stored { nothing, something };

/// The launch under way, as one block of it sees it. Made by all threads of the block.
template <class B>
class Launch {
 public:
  CROSSLANE_DEVICE Launch(const B& block, const Frame& frame)
      : block_(block), frame_(frame), own_(frame.control[frame.me]), number_(block.load(&own_->launches)) {
    const std::uint64_t given_up = block.load(&own_->given_up);
    lost_ = given_up != 0 && given_up <= number_;
  }

  /// An earlier launch gave up: this one is to end at once, before it stores anything or tells anybody.
  CROSSLANE_DEVICE bool lost() const { return lost_; }
  /// What is added to addresses of double-buffered memory.
  CROSSLANE_DEVICE std::uint64_t shift(std::uint64_t parity) const { return (number_ & 1) != 0 ? parity : 0; }

  /// All members' blocks of this index: what each wrote before, all threads of all of them may read after, and write what it
  /// read. False (to all threads) where a peer did not come.
  CROSSLANE_DEVICE bool barrier(std::uint64_t phase, Stored stored = Stored::something) const {
    block_.barrier();
    const std::uint64_t epoch = 4 * number_ + phase;
    block_.for_each(frame_.members, [&](std::uint64_t p) {
      if (p == frame_.me) return;
      std::uint64_t* const flag = &frame_.control[p]->flags[block_.index()][frame_.me];
      if (stored == Stored::nothing) {
        block_.announce(flag, epoch);
      } else {
        block_.post(flag, epoch);
      }
    });
    return await_all(block_.index(), epoch, ~std::uint32_t{0});
  }

  /// The first barrier of a launch with a root that has stored nothing, but the root tells with it where its results belong. Then `heard` is
  /// what it told, to all threads. With `parts` all tell of those, too.
  CROSSLANE_DEVICE bool start_barrier(std::uint32_t root, const Landing& landing, std::uint64_t& heard,
                                      const Parts* parts = nullptr) const {
    heard = Landing::nowhere;
    const bool is_root = root == frame_.me, tells = is_root || parts != nullptr;
    if (tells) {
      // By the thread that posts to that member.
      block_.for_each(frame_.members, [&](std::uint64_t p) {
        Control* const control = frame_.control[p];
        if (is_root) block_.store_now(&control->places[number_ & 1][block_.index()], landing.told);
        if (parts != nullptr) block_.store_now(&control->parts[number_ & 1][block_.index()][frame_.me], parts->told);
      });
    }
    if (!barrier(1, tells ? Stored::something : Stored::nothing)) return false;
    if (root < frame_.members) heard = block_.load_now(&own_->places[number_ & 1][block_.index()]);
    return true;
  }

  /// After one with parts: what each member told. True, to all threads of all members, if all told where their parts are.
  CROSSLANE_DEVICE bool hear(std::uint64_t (&heard)[most_members]) const {
    constexpr std::uint32_t ahead = 8;  // loads in flight: one after the other each costs a way to memory
    const std::uint64_t* const told = own_->parts[number_ & 1][block_.index()];
    bool known = true;
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < frame_.members; first += ahead) {
      std::uint64_t word[ahead] = {};
      CROSSLANE_UNROLLED
      for (std::uint32_t k = 0; k < ahead; ++k)
        if (first + k < frame_.members) word[k] = block_.load_now(told + first + k);
      CROSSLANE_UNROLLED
      for (std::uint32_t k = 0; k < ahead; ++k) {
        if (first + k >= frame_.members) continue;
        known = known && word[k] != Landing::nowhere;
        heard[first + k] = word[k];
      }
    }
    return known;
  }

  /// The same in two halves, for pipelines, whose launch has many steps: tells those peers' (a bit each) blocks of this
  /// index that what was before is done, and waits until they are as far. No barrier() before, which is for the caller.
  CROSSLANE_DEVICE void post_step(std::uint64_t step, std::uint32_t to = ~std::uint32_t{0}) const {
    post_steps([&](std::uint64_t p) { return (to >> p & 1) != 0 ? step : 0; });
  }
  CROSSLANE_DEVICE bool await_step(std::uint64_t step, std::uint32_t from = ~std::uint32_t{0}) const {
    return await_steps([&](std::uint64_t p) { return (from >> p & 1) != 0 ? step : 0; });
  }
  /// The same where steps differ by the peer: step(p), 0 for none.
  template <class Step>
  CROSSLANE_DEVICE void post_steps(Step step) const {
    block_.for_each(frame_.members, [&](std::uint64_t p) {
      const std::uint64_t done = p == frame_.me ? 0 : step(p);
      if (done != 0) block_.post(&frame_.control[p]->steps[block_.index()][frame_.me], step_epoch(done));
    });
  }
  template <class Step>
  CROSSLANE_DEVICE bool await_steps(Step step) const {
    return block_.all_of(frame_.members, [&](std::uint64_t p) {
      const std::uint64_t wanted = p == frame_.me ? 0 : step(p);
      if (wanted == 0) return true;
      const std::uint64_t* const flag = &own_->steps[block_.index()][p];
      return await([&] { return p; }, [&] { return block_.reached(flag, step_epoch(wanted)); });
    });
  }

  /// Tells those peers (a bit each) that this launch has started: block 0's business.
  CROSSLANE_DEVICE void send_tokens(std::uint32_t to) const {
    to &= frame_.others();
    if (block_.index() != 0 || to == 0) return;
    block_.for_each(frame_.members, [&](std::uint64_t p) {
      if ((to >> p & 1) != 0) block_.post(&frame_.control[p]->flags[0][frame_.me], 4 * number_ + 1);
    });
  }
  /// Waits until those peers have told the same.
  CROSSLANE_DEVICE void await_tokens(std::uint32_t from) const {
    from &= frame_.others();
    if (block_.index() == 0 && from != 0) await_all(0, 4 * number_ + 1, from);
  }

  /// A wait: `ready` is polled. False, with all that follows from it, when the limit is reached first: `whose` says then
  /// which member has not come. By one thread, or by a group of them that do the same.
  template <std::uint32_t group = 1, class Whose, class Ready>
  CROSSLANE_DEVICE bool await(Whose whose, Ready ready) const {
    auto patience = block_.patience(frame_.limit);
    while (!ready()) {
      const bool over = patience.over();
      if (!patience.looked()) continue;
      if (block_.template any<group>(over)) {
        give_up(whose());
        CROSSLANE_ROLLED
        for (std::uint32_t p = 0; p < frame_.members; ++p)
          if (p != frame_.me) block_.store_now(&frame_.control[p]->called_off, CalledOff::word(number_, whose()));
        return false;
      }
      const std::uint64_t called_off = block_.load_now(&own_->called_off);
      const bool off = obeys(called_off);
      if (block_.template any<group>(off || block_.load_now(&own_->given_up) == number_ + 1)) return false;
    }
    return true;
  }

  /// Ends the block's part, by all its threads. The last block of all makes the launch a past one; then `counter`, if any, holds `count`.
  CROSSLANE_DEVICE void finish(std::uint64_t* counter = nullptr, std::uint64_t count = 0) const {
    block_.barrier();
    block_.for_each(1, [&](std::uint64_t) {
      // `done` vouches for all blocks. Who comes later on the stream needs no more than the launch's end.
      if (!comes_last(block_, &own_->finished, frame_.done != nullptr)) return;
      if (counter != nullptr) block_.store_now(counter, count);
      end();
    });
  }

  /// The same of a launch with `done`, before which its last block tells others of its end, too: tell(i), i < count, by a thread each.
  template <class F>
  CROSSLANE_DEVICE void finish_telling(std::uint64_t count, F tell) const {
    if (!is_last_block(block_, &own_->finished)) return;
    block_.for_each(count, tell);
    block_.barrier();
    block_.for_each(1, [&](std::uint64_t) { end(); });
  }

 private:
  // By one thread of the last block to come: the launch is a past one.
  CROSSLANE_DEVICE void end() const {
    block_.store_now(&own_->launches, number_ + 1);
    if (frame_.done != nullptr) block_.post(frame_.done, frame_.done_value);
  }

  // Room for 2^24 steps a launch, and 2^40 launches: weeks of nothing else.
  CROSSLANE_DEVICE std::uint64_t step_epoch(std::uint64_t step) const { return (number_ + 1) << 24 | step; }

  CROSSLANE_DEVICE bool await_all(std::uint64_t index, std::uint64_t epoch, std::uint32_t from) const {
    return block_.all_of(frame_.members, [&](std::uint64_t p) {
      if (p == frame_.me || (from >> p & 1) == 0) return true;
      const std::uint64_t* const flag = &own_->flags[index][p];
      const std::uint64_t called_off = block_.load_now(&own_->called_off);  // under way beside the flag
      return await([&] { return p; }, [&] { return block_.reached(flag, epoch); }) && !obeys(called_off);
    });
  }

  CROSSLANE_DEVICE void give_up(std::uint64_t missing) const {
    block_.store_now(&own_->given_up, number_ + 1);
    if (frame_.failed != nullptr) block_.store_now(frame_.failed, missing + 1);
  }
  // True where a peer has called this launch off: then it gives up, too.
  CROSSLANE_DEVICE bool obeys(std::uint64_t called_off) const {
    if (!CalledOff::is_of(called_off, number_)) return false;
    give_up(CalledOff::missing_in(called_off));
    return true;
  }

  const B& block_;
  const Frame& frame_;
  Control* own_;
  std::uint64_t number_;
  bool lost_;
};

}  // namespace crosslane::kernel
