// What we know about a communicator of the application: who its ranks are in the world, and its calls' numbers. Kept as an
// attribute of the communicator, so that it goes with it. It must not call anything collective.
#pragma once

#include "mpi/library.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace crosslane::team {

/// A rank of another world (MPI_Comm_spawn, MPI_Comm_connect), or MPI_PROC_NULL.
inline constexpr int not_in_world = -1;

struct CommunicatorFacts {
  /// By rank in the communicator, or in the remote group of an inter-communicator: the rank in MPI_COMM_WORLD.
  std::vector<int> world_ranks;
  bool inter = false;
  /// Calls of this rank on it, for the watchdog and for pairing calls across ranks.
  std::atomic<std::uint64_t> calls{0};

  /// The peer's rank in the world; not_in_world if it has none, also for wildcards and MPI_PROC_NULL.
  [[nodiscard]] int world_rank(int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < world_ranks.size() ? world_ranks[index] : not_in_world;
  }
};

class Communicators {
 public:
  /// After MPI_Init. Throws Error (other) if MPI refuses.
  Communicators(const mpi::Functions& mpi, const mpi::Handles& handles);
  /// Before MPI_Finalize. Facts of communicators that still live go with these.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Any thread: found in tens of nanoseconds once known; local to this rank. Valid until the communicator is freed.
  /// Throws Error (comm) where MPI does not take it for a communicator.
  CommunicatorFacts& of(MPI_Comm communicator);

  /// Its name for messages, or what it is if nobody named it.
  [[nodiscard]] std::string name_of(MPI_Comm communicator) const;

 private:
  [[nodiscard]] CommunicatorFacts* find(MPI_Comm communicator) const;
  CommunicatorFacts* learn(MPI_Comm communicator) const;

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  int key_;
  MPI_Group world_;
  std::mutex mutex_;  // two threads may meet a communicator first at once
};

}  // namespace crosslane::team
