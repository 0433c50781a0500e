// What we know about a communicator of the application: who its ranks are in the world, and its calls' numbers. Kept as an
// attribute of the communicator, so that it goes with it, but when the call that ends it returns: callbacks of the application's own
// attributes run in that, before ours or behind it as the MPI likes, and may use the communicator. It must not call anything collective.
#pragma once

#include "base/function_ref.h"
#include "mpi/library.h"
#include "share/board.h"
#include "team/neighbourhood.h"
#include "team/prepared.h"
#include "team/span.h"
#include "team/team.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::team {

/// A rank of another world (MPI_Comm_spawn, MPI_Comm_connect), or MPI_PROC_NULL; of a session's communicator any.
inline constexpr int not_in_world = -1;

struct CommunicatorFacts {
  /// By rank in the communicator, or in the remote group of an inter-communicator: the rank in MPI_COMM_WORLD.
  std::vector<int> world_ranks;
  bool inter = false;
  /// It comes from a session: MPI_Init and MPI_Finalize may come while operations on it are under way, which must not need what is there in between alone.
  /// All such communicators share these facts, of no ranks.
  bool of_session = false;
  /// Calls of this rank on it, for the watchdog and for pairing calls across ranks.
  std::atomic<std::uint64_t> calls{0};
  /// The application has freed the communicator; operations on it may still be under way, and keep these facts.
  std::atomic<bool> freed{false};
  /// Names it within the job, equal on all its ranks; nothing where its making was not seen.
  std::optional<share::TeamKey> key;
  /// Communicators made from it, by calls that all its ranks make in the same order.
  std::atomic<std::uint64_t> created{0};
  /// Persistent collectives that were made on it, by calls that all its ranks make in the same order.
  std::atomic<std::uint64_t> persistent{0};
  /// Set up on demand (interpose/teams.h); then `team_known` is true, and `team` null where its ranks do not share a node.
  std::atomic<bool> team_known{false};
  std::shared_ptr<Team> team;
  /// Set up with the team; null where the communicator has no virtual topology, or its ranks do not share a node.
  std::shared_ptr<Neighbourhood> neighbourhood;
  /// The same where they are on several nodes, all of whose ranks take part; else null.
  std::shared_ptr<Span> span;
  /// What enqueued calls need; null until crosslane_prepare.
  std::shared_ptr<Prepared> prepared;

  /// The peer's rank in the world; not_in_world if it has none, also for wildcards and MPI_PROC_NULL.
  [[nodiscard]] int world_rank(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < world_ranks.size() ? world_ranks[index] : not_in_world;
  }
};

/// The name of the communicator that call `number` on the parent made, for its members: of the parts that one split makes, each
/// has another first rank. Nothing where the parent has none, or the child is an inter-communicator.
[[nodiscard]] std::optional<share::TeamKey> child_key(const CommunicatorFacts& parent, std::uint64_t number,
                                                      const CommunicatorFacts& child);

/// The name of the communicator that this rank of the world was the first of when it named the `number`-th one itself: where no call of all
/// ranks of a parent made it.
[[nodiscard]] share::TeamKey told_key(int world_rank, std::uint64_t number) noexcept;

/// The name of the persistent collective that call `number` on the communicator made.
[[nodiscard]] share::TeamKey persistent_key(const share::TeamKey& communicator, std::uint64_t number) noexcept;

class AttachedFacts;

class Communicators {
 public:
  /// Which communicators come from sessions.
  using OfSession = std::function<bool(MPI_Comm)>;
  /// After MPI_Init. Throws Error (other) if MPI refuses.
  Communicators(
      const mpi::Functions& mpi, const mpi::Handles& handles, OfSession of_session = [](MPI_Comm) { return false; });
  /// Before MPI_Finalize. Facts of communicators that still live go with these.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Any thread: found in tens of nanoseconds once known; local to this rank. Valid until the communicator is freed.
  /// Throws mpi::Raised (comm) where MPI does not take it for a communicator.
  CommunicatorFacts& of(MPI_Comm communicator) { return *share(communicator); }

  /// The same for who may need them longer: an operation that outlives its communicator finds it `freed`.
  const std::shared_ptr<CommunicatorFacts>& share(MPI_Comm communicator);

  /// What is known already, of a handle that may be anything; null if nothing is. Asks MPI for nothing.
  [[nodiscard]] std::shared_ptr<CommunicatorFacts> known(MPI_Comm communicator) const;

  /// `ending` frees or disconnects the communicator, and returns the MPI's code, as this does. Until then, and if it fails or throws, the facts
  /// stay what they are. Any thread; `communicator` may be anything, which is the MPI's to refuse.
  int end(MPI_Comm communicator, base::FunctionRef<int()> ending);

  /// Its name for messages, or what it is if nobody named it.
  [[nodiscard]] std::string name_of(MPI_Comm communicator) const;

 private:
  using Facts = std::shared_ptr<CommunicatorFacts>;
  [[nodiscard]] const Facts* find(MPI_Comm communicator) const;
  [[nodiscard]] Facts learn(MPI_Comm communicator) const;
  const Facts& attach(MPI_Comm communicator, Facts facts) const;
  void put_back(MPI_Comm communicator, Facts facts) const noexcept;

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  const OfSession of_session_;
  const Facts sessions_ = std::make_shared<CommunicatorFacts>();  // nothing is attached to them
  const std::shared_ptr<AttachedFacts> attached_;
  int key_;
  MPI_Group world_;
  std::mutex mutex_;  // two threads may meet a communicator first at once
};

}  // namespace crosslane::team
