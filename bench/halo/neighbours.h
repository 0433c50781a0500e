// The 26 neighbours of a rank in a periodic grid of ranks, and the boxes of its array that go to them and come from them, as
// datatypes and as parts of a packed buffer. It must not know how they are sent.
#pragma once

#include "kernels/halo_parts.h"

#include <mpi.h>

#include <array>
#include <cstddef>

namespace crosslane::bench {

/// Directions: faces first, then edges, then corners.
inline constexpr int directions = HaloParts::most;

/// The array of one rank: a cube of `edge` cells of doubles, and a halo of one cell around it. What travels in direction d leaves this
/// rank for to[d] and comes to it from from[d].
class Neighbours {
 public:
  /// Collective over MPI_COMM_WORLD.
  explicit Neighbours(int edge);
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  /// All ranks with these neighbours, in this order, as MPI_Neighbor_alltoallw wants them.
  [[nodiscard]] MPI_Comm communicator() const noexcept { return graph_; }
  [[nodiscard]] std::size_t cells() const noexcept { return static_cast<std::size_t>(pitch_) * pitch_ * pitch_; }
  /// Bytes that a rank sends to all neighbours together.
  [[nodiscard]] std::size_t bytes() const noexcept { return send.cells * sizeof(double); }
  /// What the inner cell, or the halo's cell, at this place of the array holds behind an exchange.
  [[nodiscard]] double expected(std::size_t cell) const;
  [[nodiscard]] bool inside(std::size_t cell) const;
  /// How the ranks are arranged.
  [[nodiscard]] const std::array<int, 3>& grid() const noexcept { return grid_; }

  std::array<int, directions> to{}, from{};
  std::array<MPI_Datatype, directions> sent{}, received{};  // of the whole array
  HaloParts send{}, receive{};

 private:
  [[nodiscard]] std::array<int, 3> place(std::size_t cell) const;

  int edge_, pitch_;
  std::array<int, 3> grid_{}, mine_{};
  MPI_Comm graph_ = MPI_COMM_NULL;
};

}  // namespace crosslane::bench
