// Communicators with random virtual topologies: grids with periodic dimensions of any size, graphs with several edges between two
// ranks, to a rank itself, and ranks without any; and which edges meet in a collective, as the MPI itself says where no tool sees it.
// It must not know Crosslane.
#pragma once

#include "collectives/entry_points.h"
#include "support/random.h"

#include <mpi.h>

#include <cstddef>
#include <string>
#include <vector>

namespace crosslane::tests {

/// The other end of an edge that comes in: a rank, and which of its blocks goes along it; no rank (MPI_PROC_NULL) sends nothing.
struct Sender {
  int rank = MPI_PROC_NULL;
  int block = 0;
};

class Topology {
 public:
  /// Collective over the world, all of whose ranks give the same `random`.
  explicit Topology(Random& random);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// By block: ranks of the communicator, or MPI_PROC_NULL.
  [[nodiscard]] const std::vector<int>& in() const { return in_; }
  [[nodiscard]] const std::vector<int>& out() const { return out_; }
  /// No rank has two edges to another, or to itself.
  [[nodiscard]] bool single() const { return single_; }
  /// Edges go one way (MPI_Dist_graph_create and its like).
  [[nodiscard]] bool directed() const { return directed_; }
  /// Whom the blocks of such a call come from, in their order. `procedure` is the blocking form's name without MPI_. Collective.
  [[nodiscard]] std::vector<Sender> senders(const std::string& procedure, Form form) const;

 private:
  void make_grid(Random& random);
  void make_graph(Random& random);
  void make_adjacent(Random& random);
  void make_distributed(Random& random);
  void find_neighbours();

  int rank_ = 0, size_ = 1;  // in the world
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::string name_;
  std::vector<int> in_, out_;
  bool single_ = true, directed_ = false;
};

/// The MPI's own procedure, which no tool sees called; no address where it has none.
[[nodiscard]] EntryPoint plain_entry(const std::string& procedure, Form form);

}  // namespace crosslane::tests
