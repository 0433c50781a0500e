// Team: the ranks of a communicator that share this node, mostly all of them (else see span.h), as one of them sees it: its place on the
// node's board, its calls' numbers, and its members' regions as mapped here once all are ready. It forms locally: no call of MPI.
//
// What a rank does in each blocking collective of the communicator:
//   enter()    says that it is there and learns which way the call goes: the same way on all members
//   prepare()  while the team is not connected: one step towards it, which never waits for another rank
//   arrive()   of a direct call: shows its buffers and waits until all members have arrived; from then on kernels may wait for
//              peers' kernels, never for a peer's host
//   may_start()  its turn among all calls of the node's teams has come: its kernels may be launched
//   finish()   the call is over here
// A nonblocking call enters likewise, without ever waiting for another rank. If it goes direct, what is left of it is done by others
// than its caller, in the order of the calls: it announces its arrival and awaits the others'.
#pragma once

#include "base/backoff.h"
#include "engine/engine.h"
#include "gpu/event.h"
#include "gpu/marker.h"
#include "gpu/pinned_pages.h"
#include "gpu/stream.h"
#include "share/directory.h"
#include "team/home.h"
#include "team/lingerer.h"
#include "team/neighbourhood.h"
#include "team/region.h"
#include "team/view.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::team {

/// Whether a call may wait for other ranks before it returns.
enum class Pace : std::uint8_t { blocking, starting };

class Team {
 public:
  /// `local_ranks`: the members on the node, in the order of their ranks in the communicator; this rank is `me`. Where the board has no room for the
  /// team, it never goes direct. `drives`: host-driven algorithms are wished for; else they are prepared for only where members
  /// must not wait for one another on their GPU. `linger_us`: as in Settings. `part_bytes`: of the window's parts (region.h). Equal on all members.
  Team(share::Directory& directory, share::Board& board, engine::Engine& engine, const share::TeamKey& key,
       std::vector<int> local_ranks, int me, bool drives, std::optional<double> linger_us,
       std::size_t part_bytes = default_part_bytes);
  ~Team();
  /// Gives back what the team has on the board and in the window, ahead of its end: no collective follows. Waits until the
  /// members that live are through with the last direct call, in which they may still read this rank's window. What may be used yet, since
  /// calls have failed, is kept in the home.
  void leave() noexcept;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(local_ranks_.size()); }
  [[nodiscard]] int me() const noexcept { return me_; }
  [[nodiscard]] int local_rank(int member) const { return local_ranks_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] const std::vector<int>& local_ranks() const noexcept { return local_ranks_; }
  /// A member's rank in the communicator, for messages: the same, unless they were named().
  [[nodiscard]] int rank(int member) const noexcept {
    return ranks_.empty() ? member : ranks_[static_cast<std::size_t>(member)];
  }
  /// In the communicator's topology this rank has several edges to one member, or from one: before it is connected.
  void has_parallel_edges() noexcept { parallel_edges_ = true; }
  /// Whether no member has; once all are connected.
  [[nodiscard]] bool single_edges() const noexcept {
    return place_ && (place_->common_abilities() & share::single_edges) != 0;
  }
  /// Which edges meet in such a call is known to this rank; to all.
  void show_matched(EdgeCall call) const noexcept {
    if (place_) place_->show_matched(Neighbourhood::bit(call));
  }
  [[nodiscard]] bool everybody_matched(EdgeCall call) const noexcept {
    return place_ && place_->everybody_matched(Neighbourhood::bit(call));
  }
  /// The members are not all of the communicator's ranks, but these.
  void named(std::vector<int> ranks) { ranks_ = std::move(ranks); }

  /// This rank comes to its next collective. It wishes for a `direct` one where it passes GPU memory, and the call has a direct algorithm;
  /// for `asking` where only that is missing which the MPI is to tell; else for `staged`. The verdict is never `open`. `watch` names the
  /// call. Throws Error (other) naming a member that it has to wait for, and whose process has ended.
  [[nodiscard]] share::Verdict enter(share::Verdict wish, Pace pace, engine::Watch watch);

  /// Why this rank cannot take part: for good, or until it finds memory. In the latter case it is not ready, which is all that the
  /// others see, so that calls stay staged, and a later call tries again.
  struct Refusal {
    std::string why;
    bool passes = false;
  };
  /// One step towards being connected; cheap once it is. What was just found out: to be told to the user once.
  [[nodiscard]] std::optional<Refusal> prepare(Home& home);
  /// This rank's home has ended, or the team is lost: the members go direct no more, but in calls for which one of them has wished already;
  /// to these this rank comes with an excuse.
  void withdraw() noexcept;
  [[nodiscard]] bool withdrawn() const noexcept { return place_ && place_->ready(me_) == share::Ready::never; }
  [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr && connection_->mapped; }

  /// What the members can reach of one another; only while connected.
  struct Connection {
    Home* home = nullptr;
    RegionLayout layout{};
    share::Window::Piece region;
    TeamView::Regions regions{};  ///< Each member's, as mapped here.
    TeamView::Regions large{};    ///< Windows for large reductions, the same way, once all are mapped:
    std::atomic<bool> large_mapped{false};
    bool large_refused = false;         ///< One could not be mapped: it is not tried again,
    base::ShortageBackoff large_rests;  ///< ... or only after so many calls, as memory was short.
    int most_on_one_gpu = 1;            ///< Members that share a GPU, where most do.
    unsigned blocks = 1;                ///< That a call may keep on a GPU (TeamView).
    std::vector<int> gpu;               ///< By member: the first member that is on the same GPU.
    std::vector<int> seats;             ///< By member: where its GPU's seats are counted.
    std::vector<gpu::Event>
        events;  ///< This rank's, by a step's parity (share/steps.h); none where it cannot have them.
    std::vector<std::vector<gpu::Event>> peer_events;  ///< By member, as opened here.
    std::optional<gpu::Stream> stream;
    std::optional<Lingerer> lingerer;  ///< Whose kernel may stay on the stream.
    std::optional<gpu::Marker> marker;
    gpu::PinnedPages words;  ///< `done`, `failed` and `abort` of the team's kernels, a line each:
    static constexpr std::size_t failed_at = share::line_bytes, abort_at = 2 * share::line_bytes;
    std::uint64_t launches = 0;  ///< Of kernels that report to `done`.
    /// Names of the last sets of the application's buffers of which this rank has mapped all; 0: none. What they mean is the
    /// collectives' affair.
    std::array<std::uint64_t, 8> reached{};
    std::size_t next_reached = 0;
    std::uint64_t closings = 0;  ///< Exposure::closings() when they were true.
    bool mapped = false;

    /// The stream, to enqueue more than kernels that stay: none stays behind this.
    [[nodiscard]] gpu::StreamView queue() noexcept;
    /// The end of what is on the stream so far.
    [[nodiscard]] engine::Completion all_enqueued();
    /// Throws Error (other) where the application has ended the context.
    void throw_if_ended() const;
    /// The same, and where the GPU has failed: it never ends then what is on the stream.
    void throw_if_failed() const;
  };
  [[nodiscard]] Connection& connection() noexcept { return *connection_; }
  [[nodiscard]] const Connection& connection() const noexcept { return *connection_; }
  /// For plans; only while connected everywhere.
  [[nodiscard]] TeamView view() const noexcept;

  /// After all members have shown their windows for large reductions: maps them. False where some member has none, or one cannot
  /// be mapped.
  bool map_large_windows();
  [[nodiscard]] bool large_windows_mapped() const noexcept {
    return connection_->large_mapped.load(std::memory_order_acquire);
  }

  /// True if this rank can take part in host-driven collectives; while connected.
  [[nodiscard]] bool drives() const noexcept { return (abilities_ & share::drives) != 0; }
  /// True once all members are connected.
  [[nodiscard]] bool connected_everywhere() noexcept;

  /// This rank's record of the direct call under way, to be filled before arrive().
  [[nodiscard]] share::Arrival& own_arrival() noexcept { return place_->own_arrival(direct_ + 1); }
  /// The same of its passages, where blocks differ.
  [[nodiscard]] std::span<share::Passage> own_passages() noexcept { return place_->own_passages(direct_ + 1); }
  /// Returns once all members have arrived at the direct call. A member with an excuse comes all the same: it has been waited for.
  /// Throws what check_all_come() does: the call is over then.
  void arrive(const engine::Watch& watch, share::Excuse excuse = share::Excuse::none);
  /// After arrive(), of a call that is started on the GPU, where it keeps `blocks` of each member's GPU: the same on all members.
  /// True once this rank may start it, at once: see turns.h. Ask again later otherwise; it never waits.
  [[nodiscard]] bool may_start(unsigned blocks);
  /// All of that call is on its stream.
  void started() noexcept { expected_->started(); }
  /// The same without waiting: it is over once arrival_of() every member is done.
  void announce(share::Excuse excuse = share::Excuse::none);
  /// Once all have arrived: whether they go to MPI, since some member has an excuse for that. Throws Error (other) naming a member that has
  /// failed.
  [[nodiscard]] bool excused() const;
  [[nodiscard]] engine::Completion arrival_of(int member) const noexcept;
  /// To be asked about once a second while one is awaited: system calls. Throws Error (other) naming a member that never comes, since its
  /// process has ended before it arrived: no member gets through this direct call, nor through later ones. This rank withdraws.
  void check_all_come();
  /// Whether the member has arrived at that direct call.
  [[nodiscard]] bool has_arrived(int member, std::uint64_t direct) const noexcept {
    return place_->arrived(member).load(std::memory_order_acquire) >= direct;
  }

  /// The last direct call that was only started; others of the team come after it.
  [[nodiscard]] const engine::Completion& queued() const noexcept { return queued_; }
  void queue(engine::Completion call) { queued_ = std::move(call); }
  /// That call is over on this rank, well or not.
  void finish() noexcept;
  /// A member's record of the call that this rank last arrived at.
  [[nodiscard]] const share::Arrival& arrival(int member) const noexcept { return place_->arrival(member, direct_); }
  [[nodiscard]] std::span<const share::Passage> passages(int member) const noexcept {
    return place_->passages(member, direct_);
  }

  /// This rank's part of the direct call under way has failed, or does because of another member: the others are to hear of it.
  void fail(int culprit) noexcept;
  /// Who is to blame if some member has.
  [[nodiscard]] std::optional<int> culprit() const noexcept;
  /// Kernels of calls that have begun wait for other members' no more.
  void stop_waiting() const noexcept;
  /// Not all have launched the kernels of a call, or some have given up: from here on, what others' kernels have written may be of another call
  /// than it seems. Kernels end, and this rank withdraws.
  void lose() noexcept;
  /// After fail(), before finish(): over once nothing that this rank has enqueued in the call is left on its GPU; or after a second: then the team is
  /// lost, and no member's region is used for anything else before what is left has ended.
  [[nodiscard]] engine::Task<> clear_away();

  /// The number of the direct call under way, and the members' entries in the directory of host-driven ones.
  [[nodiscard]] std::uint64_t direct_call() const noexcept { return direct_; }
  [[nodiscard]] share::Entry& own_entry() noexcept { return place_->own_entry(); }
  [[nodiscard]] const share::Entry& entry(int member) const noexcept { return place_->entry(member); }
  /// False if it is certain that the member's process has ended: a system call.
  [[nodiscard]] bool alive(int member) const noexcept { return directory_.alive(local_rank(member)); }
  /// The first member of which it is certain, if there is one: a system call for each.
  [[nodiscard]] std::optional<int> dead() const noexcept;

 private:
  class Ending;
  [[nodiscard]] std::optional<engine::Completion> end_of_remains() noexcept;
  [[nodiscard]] engine::Task<> clear_away(std::optional<engine::Completion> end);
  [[nodiscard]] bool far_ahead() noexcept;
  void wait_for_laggards(engine::Watch watch);
  [[nodiscard]] std::uint64_t last_begun() const noexcept;
  [[nodiscard]] bool is_through(int member, std::uint64_t direct) const noexcept;
  void wait_for_readers() noexcept;
  [[noreturn]] void fail_without(int member) const;
  [[nodiscard]] std::optional<std::string> why_nowhere() const;
  void send_lingerer_away() noexcept;
  void take_region(Home& home);
  void map_regions();
  [[nodiscard]] bool open_events();

  share::Directory& directory_;
  share::Board& board_;
  engine::Engine& engine_;
  std::vector<int> local_ranks_;
  std::vector<int> ranks_;
  int me_;
  bool drives_;
  std::optional<double> linger_us_;
  bool parallel_edges_ = false;
  std::size_t part_bytes_;
  std::optional<share::TeamPlace> place_;
  bool asks_ = false;
  bool refused_ = false;
  base::ShortageBackoff rests_;  // in calls, where memory was short
  bool everybody_asks_ = false;  // when there were so many lapses:
  std::uint64_t lapses_ = 0;
  std::uint32_t abilities_ = 0;  // of this rank
  bool all_mapped_ = false;
  std::uint64_t clear_until_ = 0;  // no verdict up to this call's has to wait for a member
  std::uint64_t sequence_ = 0;
  std::uint64_t direct_ = 0;
  std::optional<Turns::Expected> expected_;  // the direct call under way
  bool has_turn_ = false;                    // it
  engine::Completion queued_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace crosslane::team
