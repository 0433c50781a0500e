// The teams of a process: which communicators' ranks share this node, the GPU that this rank takes part with, and the
// machinery that runs their collectives directly between GPUs. It must not know any one collective.
#pragma once

#include "base/backoff.h"
#include "collective/blocking.h"
#include "collective/enqueued.h"
#include "engine/helper_thread.h"
#include "interpose/process.h"
#include "team/communicators.h"
#include "team/home.h"
#include "team/team.h"
#include "team/world.h"

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::interpose {

class Teams {
 public:
  /// After the world was formed.
  Teams(Process& process, team::World& world, team::Communicators& communicators, const collective::Choice& choice);
  /// Before the world goes: ends the teams of communicators that still live.
  ~Teams();
  Teams(const Teams&) = delete;
  Teams& operator=(const Teams&) = delete;

  /// The team of a communicator: nothing (null) where its ranks do not all share this node, or its making was not seen.
  [[nodiscard]] const std::shared_ptr<team::Team>& of(MPI_Comm communicator);

  /// What a communicator has whose ranks are on several nodes; null where no collective spans them, or some do not take part.
  [[nodiscard]] const std::shared_ptr<team::Span>& span_of(MPI_Comm communicator);

  /// A team for one persistent collective of a communicator that has one: its starts have an order of their own. By all ranks of
  /// the communicator, in the same order.
  [[nodiscard]] std::shared_ptr<team::Team> for_persistent(MPI_Comm communicator);

  /// MPI made `child` (null where this rank is not in it) from `parent`, in a call that is collective over the parent: counted, so
  /// that all its members know the child by the same name.
  void created(MPI_Comm parent, MPI_Comm child) noexcept;
  /// The same of a call that was counted on the parent, as its number `number`, when it began.
  void name(const team::CommunicatorFacts& parent, std::uint64_t number, MPI_Comm child) noexcept;
  /// MPI made `child` in a call of its members alone, which goes on: the first one tells the others a name.
  void created_apart(MPI_Comm child) noexcept;

  /// The GPU that this rank takes part with: that of the first GPU memory which it passes. Null where it has none yet, or cannot
  /// take part: the GPU does not have what it needs (memory for that is looked for again), or the application has ended its context;
  /// said once.
  [[nodiscard]] team::Home* home() noexcept { return home_seen_.load(std::memory_order_acquire); }
  /// The same for a call with GPU memory at `place`, made where there is none yet.
  team::Home* home_at(const lane::Place& place) noexcept;
  /// The same for a call with GPU memory of which nobody has asked yet where it is; asks whether its context stands.
  [[nodiscard]] team::Home* standing_home() noexcept;

  /// A call with such GPU memory would not go through the host if that were of the home's context: told once there were so many that it
  /// costs something. Without a context: of a pool of the GPU.
  void pass_elsewhere(const team::Home& home, CUcontext context, int device, const char* call) noexcept {
    const bool here = context != nullptr ? context == home.context() : device == home.device();
    if (here || device < 0) return;
    const unsigned calls = calls_elsewhere_.load(std::memory_order_relaxed);
    if (calls < calls_worth_telling) tell_elsewhere(home, device, call);
  }

  /// The layout of a byte, for buffers that are nothing but bytes.
  [[nodiscard]] const std::shared_ptr<const layout::Layout>& byte() const noexcept { return byte_; }
  /// What enqueued calls on a communicator need; made empty where it has none yet. `local_ranks` and `me` as team::Prepared wants
  /// them.
  [[nodiscard]] team::Prepared& prepared(team::CommunicatorFacts& facts, std::vector<int> local_ranks, int me);
  /// Gives back what was left of communicators that all ranks have freed, and is over since.
  void give_back_freed() noexcept;
  /// A number that this process never gave before.
  [[nodiscard]] std::uint64_t next_number() noexcept { return ++numbers_; }

  /// Keeps a question to the MPI until it is over, at the latest when these end.
  void keep(std::shared_ptr<team::Question> question);

  /// The same of a call that has failed here, until the others have come to it: its team is not to end on the helper thread, which cannot wait
  /// as an end has to.
  void keep(std::list<std::shared_ptr<collective::Started>> call) noexcept;

  /// Carries out direct calls that are only started; started with the first one. Throws Error (other) if the system refuses.
  [[nodiscard]] engine::HelperThread& helper();
  /// Null where the system refuses it, which is said once.
  [[nodiscard]] engine::HelperThread* helper_if_any() noexcept;

  /// True once: a communicator of this rank has just been found to have its collectives on GPU memory staged.
  [[nodiscard]] bool first_refusal() noexcept { return !refusal_told_.exchange(true, std::memory_order_relaxed); }
  /// The same for as long as memory is short.
  [[nodiscard]] bool first_shortage() noexcept { return !shortage_told_.exchange(true, std::memory_order_relaxed); }
  /// And of a window, which is accessed on host copies.
  [[nodiscard]] bool first_unmapped_window() noexcept {
    return !window_told_.exchange(true, std::memory_order_relaxed);
  }

  /// Any thread: a direct call ran by this row of the catalogue.
  void count(const collective::Algorithm& row) noexcept;
  /// How many did by those of that name, or by any if it is empty, in this collective.
  [[nodiscard]] std::uint64_t calls(std::string_view collective, std::string_view algorithm) const noexcept;

  [[nodiscard]] const collective::Choice& choice() const noexcept { return choice_; }
  [[nodiscard]] const collective::Blocking& blocking() const noexcept { return blocking_; }
  [[nodiscard]] const collective::Enqueued& enqueued() const noexcept { return enqueued_; }

 private:
  /// The mutex is held. `topology`: may be null.
  std::shared_ptr<team::Team> make_team(const share::TeamKey& key, std::vector<int> local_ranks, int me, bool drives,
                                        const team::Neighbourhood* topology = nullptr,
                                        std::size_t part_bytes = team::default_part_bytes);
  [[nodiscard]] std::shared_ptr<team::Span> make_span(const team::CommunicatorFacts& facts);
  /// Collectives on a communicator of these ranks may be ours, if it has a name. The same on all of them.
  [[nodiscard]] bool may_take(const team::CommunicatorFacts& facts) const;
  void tell_elsewhere(const team::Home& home, int device, const char* call) noexcept;
  // A test that tries all of a machine's GPUs makes some dozens, and takes what is printed for a failure.
  static constexpr unsigned calls_worth_telling = 1000;
  /// The context of the home has ended: this rank takes part through the host from now on.
  void leave_home() noexcept;
  /// Says so, once: to a call with GPU memory, for most programs end their context when they pass none any more.
  void tell_ended() noexcept;

  Process& process_;
  team::World& world_;
  team::Communicators& communicators_;
  std::shared_ptr<const layout::Layout> byte_ = std::make_shared<const layout::Layout>(layout::block(0, 1), 0, 1);
  const collective::Choice& choice_;
  collective::Blocking blocking_;
  collective::Enqueued enqueued_;
  const std::shared_ptr<team::SpanTags> span_tags_ = std::make_shared<team::SpanTags>();
  std::mutex mutex_;
  std::vector<std::weak_ptr<team::Team>> living_;
  std::vector<std::shared_ptr<team::Prepared>>
      prepared_;  // those of freed communicators until all ranks have freed them, and all calls on them have ended
  std::vector<std::shared_ptr<team::Question>> questions_;
  std::list<std::shared_ptr<collective::Started>> in_vain_;
  std::atomic<std::uint64_t> numbers_{0}, told_{0};
  std::unique_ptr<team::Home> home_;
  std::atomic<team::Home*> home_seen_{nullptr};  // once all else knows it
  std::atomic<bool> homeless_{false}, refusal_told_{false}, shortage_told_{false}, window_told_{false};
  std::atomic<bool> ended_untold_{false};
  std::atomic<unsigned> calls_elsewhere_{0};
  base::ShortageBackoff home_rests_;  // in calls that found none, as memory was short
  bool home_short_ = false;
  std::atomic<std::uint64_t> contexts_ended_{0};  // when the home was last asked whether it stands
  std::unique_ptr<engine::HelperThread> helper_;
  std::atomic<bool> helper_refused_{false};
  std::vector<std::atomic<std::uint64_t>> calls_;  // by row of the catalogue
};

}  // namespace crosslane::interpose
