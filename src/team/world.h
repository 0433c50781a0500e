// World: what a rank knows of its job after MPI_Init: a private communicator, the job's cookie, who shares a node with
// whom, and the node's directory. It must not know the application's communicators (communicators.h) nor any algorithm.
#pragma once

#include "base/settings.h"
#include "engine/engine.h"
#include "mpi/library.h"
#include "share/board.h"
#include "share/directory.h"
#include "team/messenger.h"
#include "topology/node_map.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace crosslane::team {

/// 128 random bits, equal on all ranks of a job and on no others.
using Cookie = std::array<std::uint64_t, 2>;

class World {
 public:
  /// In MPI_Init, by every rank of MPI_COMM_WORLD; with CROSSLANE_WORLD=partial local, and then nobody takes part.
  /// `mpi` and `handles` are the library's own (not tools'), and outlive the world. Throws Error (other) if MPI fails, or
  /// if ranks run different versions of Crosslane. Where ranks of a node cannot share memory it warns and goes on.
  /// `looks`: a GPU may appear in this rank. It then looks at what it receives, unless CROSSLANE_PIPELINE_BYTES
  /// and CROSSLANE_DIRECT_BYTES are 0.
  /// `alike`: lines NAME=value that must be the same on all ranks, besides the settings' own; Error (argument) names what is not.
  World(const mpi::Functions& mpi, const mpi::Handles& handles, engine::Engine& engine, const base::Settings& settings,
        bool looks, std::span<const share::Method> methods = share::all_methods, const std::string& alike = {});
  /// In MPI_Init, by every rank of an agreed world, once this one has made what it works with besides, or could not, `failed`: throws Error (other)
  /// on all others where one could not, naming the first: they must not count on it.
  void confirm(bool failed);

  /// In MPI_Finalize, before MPI's own: frees the communicator. Never throws.
  ~World();
  /// The same of one that what is under way without an end refers to: it stays, with its communicator.
  static void leave_behind(std::unique_ptr<World> world) noexcept;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// This rank in MPI_COMM_WORLD, and how many there are.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// True if all ranks load Crosslane and agreed on what follows; false for a partial world, where nobody takes part.
  [[nodiscard]] bool agreed() const noexcept { return messenger_.has_value(); }
  /// True if that rank of MPI_COMM_WORLD loads Crosslane, as far as is known. False for not_in_world.
  [[nodiscard]] bool takes_part(int world_rank) const noexcept {
    return agreed() && world_rank >= 0 && world_rank < size_;
  }
  /// True if that rank takes part and looks at what it receives, so that it can be sent a header instead of a payload: a
  /// rank where no GPU can ever appear does not, and pays nothing for those that can.
  [[nodiscard]] bool looks_at_receives(int world_rank) const {
    return takes_part(world_rank) && looks_[static_cast<std::size_t>(world_rank)];
  }
  /// True if that rank takes part, and a GPU may appear in it.
  [[nodiscard]] bool may_have_gpus(int world_rank) const {
    return takes_part(world_rank) && may_have_gpus_[static_cast<std::size_t>(world_rank)];
  }
  /// True if that rank takes part and shares this rank's directory (itself included).
  [[nodiscard]] bool on_my_node(int world_rank) const {
    return takes_part(world_rank) && nodes_.same_node(rank_, world_rank);
  }

  /// By these ranks of MPI_COMM_WORLD, which ranks of this rank's node they are. Nothing where one is not on_my_node().
  [[nodiscard]] std::optional<std::vector<int>> local_ranks(std::span<const int> world_ranks) const;

  /// All ranks' nodes; of a partial world, each rank its own.
  [[nodiscard]] const topology::NodeMap& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Cookie& cookie() const noexcept { return cookie_; }

  /// The node's, or this rank's own where nothing is shared.
  [[nodiscard]] share::Directory& directory() noexcept { return *directory_; }

  /// The table of the node's teams.
  [[nodiscard]] share::Board& board() noexcept { return *board_; }
  /// True if GPUs may appear on this node, so that its ranks number their collectives: equal on all its ranks.
  [[nodiscard]] bool node_looks() const noexcept { return node_looks_; }

  /// The private communicator, with allocated tags (tags.h). Only if agreed().
  [[nodiscard]] const Messenger& messenger() const { return messenger_.value(); }

 private:
  struct Card;
  void leave() noexcept;
  engine::Task<> form(const base::Settings& settings, bool looks, std::span<const share::Method> methods,
                      std::string alike);

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  engine::Engine& engine_;
  int rank_ = 0;
  int size_ = 1;
  MPI_Comm communicator_;
  Cookie cookie_{};
  std::vector<bool> looks_, may_have_gpus_;  // by rank
  topology::NodeMap nodes_;
  std::optional<Messenger> messenger_;
  std::uint8_t confirmation_ = 0;  // of this rank: that it has failed; and all ranks'
  std::vector<std::uint8_t> confirmations_;
  std::optional<share::Directory> directory_;
  std::optional<share::Board> board_;
  bool node_looks_ = false;
};

}  // namespace crosslane::team
