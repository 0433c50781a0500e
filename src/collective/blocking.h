// A call that goes direct: shows its buffers, waits until all members are there, chooses, runs, and waits for the word that the last
// kernel writes. A blocking call does so itself, a call that is only started leaves it to the helper thread. It keeps a count alone, for any thread.
// It must not know MPI's handles.
#pragma once

#include "collective/choose.h"
#include "collective/claim.h"
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "share/exposure.h"
#include "team/team.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace crosslane::collective {

/// One rank's side of a call.
struct Side {
  Buffers buffers;
  /// As others may map them, where the rank could find out; ids of 0 otherwise.
  share::Exposed send{}, receive{};
  Claim claim{};                   ///< Looked at where claims are compared.
  std::optional<Pieces> pieces{};  ///< Of collectives whose blocks may differ.
  bool lifts = false;  ///< What fills the buffers is enqueued on the team's stream, and may still be under way.
  /// Enqueues what brings results to where they belong behind the call, on the team's stream and with its context current; null: nothing does. Not
  /// called where the host drives the algorithm. Of a call that fails it brings what happens to be there.
  std::function<void(gpu::StreamView)> lower{};
};

/// A call that was only started: what it needs until it is over.
struct Started {
  std::shared_ptr<team::Team> team;
  Shape shape;
  Side mine;
  bool compares_only = false;  ///< This rank cannot run it: what it was called with is compared, and is wrong.
  share::Excuse excuse = share::Excuse::none;  ///< This rank only tells the others.
  std::shared_ptr<void> kept;                  ///< What `mine` refers to.
  engine::Completion over;
  /// How it went, once it is over.
  const Algorithm* algorithm = nullptr;
  std::exception_ptr error;

  /// What it waits for, for the watchdog; any thread.
  [[nodiscard]] std::string details() const;
  std::atomic<std::uint64_t> number{0};  ///< Of the direct call; 0 while others of the team come before it.
  std::atomic<int> waits_for{-1};        ///< The member; -1: none.
};

/// From how many bytes on that a call moves through each member mapping the application's buffers pays; and using those that are mapped
/// already, since enqueued calls were prepared with them.
inline constexpr std::size_t least_worth_exposing = std::size_t{256} << 10;
inline constexpr std::size_t least_worth_using_prepared = std::size_t{16} << 10;
/// True where a call moves `least` bytes through each member, or more.
[[nodiscard]] bool worth_exposing(const Shape& shape, int members, std::size_t least = least_worth_exposing) noexcept;
/// True where a side has to show its buffers: where that may pay, as far as it knows. `bytes`: what it receives itself.
[[nodiscard]] bool worth_showing(const Shape& shape, int members, std::size_t bytes) noexcept;

class Blocking {
 public:
  Blocking(const Choice& choice, engine::Engine& engine, const base::Settings& settings) noexcept
      : choice_(choice), engine_(engine), watchdog_seconds_(settings.watchdog_s), checks_(settings.check) {}

  /// True if the members compare what they were called with (CROSSLANE_CHECK): the same on all ranks.
  [[nodiscard]] bool checks() const noexcept { return checks_; }
  /// Of a call whose verdict is `direct`, but which this rank cannot run so: returns if that holds for all members, who all go to
  /// MPI then. `pieces`: of blocks of different sizes, where they are known; else null. Throws Error (argument) naming what differs
  /// otherwise. Only where checks().
  void compare(team::Team& team, const Claim& claim, const Pieces* pieces, const engine::Watch& watch) const;
  /// Of a call whose verdict is `direct`: tells the others that this rank takes no part in it.
  void excuse(team::Team& team, share::Excuse why, const engine::Watch& watch) const;

  /// Returns when this rank's part is complete: its buffers may be used again and hold the result. Throws Error (other) naming the
  /// member that did not take part within the limit, and where the GPU fails. The verdict of the team for this call is `direct`.
  /// Returns the algorithm that ran, a row of the catalogue; null where all members go to MPI instead, since one has told so.
  const Algorithm* run(team::Team& team, const Shape& shape, const Side& mine, const engine::Watch& watch) const;

  /// The same of a call on a communicator that is on several nodes, by an algorithm that spans them. `shape` names ranks of the
  /// communicator.
  void run(const Beyond& beyond, const Algorithm& algorithm, const Shape& shape, const Side& mine,
           const engine::Watch& watch) const;

  /// The same without waiting, and carried out after those of the team that were started before: by the helper, or by turns of the engine where there
  /// is none. With checks(), an error that names what differs is told when it is over.
  void start(const std::shared_ptr<Started>& call, engine::HelperThread* helper) const;

  /// How many calls took no launch on this rank.
  [[nodiscard]] std::uint64_t rung() const noexcept { return rung_.load(std::memory_order_relaxed); }

  /// False if no algorithm takes such a call of this team, all of whose members are connected, whatever the buffers: equal on all.
  [[nodiscard]] bool takes(const team::Team& team, const Shape& shape) const;

 private:
  class Participation;
  [[nodiscard]] TeamFacts facts_in(const team::TeamView& team) const;
  /// True if such a call would run otherwise if all had the others' windows for large reductions: equal on all members.
  [[nodiscard]] bool wants_large_windows(const team::TeamView& team, const Shape& shape) const;
  [[nodiscard]] double limit_seconds() const noexcept;
  void drive(const Algorithm& algorithm, const Call& call, const Side& mine, team::Team& team, const Beyond* beyond,
             const engine::Watch& watch) const;
  [[nodiscard]] DrivenCall driven(const Call& call, const Side& mine, team::Team& team,
                                  std::atomic<int>& waits_for) const;
  engine::Task<> carry_out(std::shared_ptr<Started> call, engine::Completion before, engine::Task<> passing) const;
  engine::Task<> pass(Started& call) const;
  engine::Task<> run(Participation& participation, Started& call) const;

  const Choice& choice_;
  engine::Engine& engine_;
  double watchdog_seconds_;
  bool checks_;
  mutable std::atomic<std::uint64_t> rung_{0};
};

}  // namespace crosslane::collective
