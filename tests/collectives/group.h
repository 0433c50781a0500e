// The communicators that collectives are tried on: intra- and inter-communicators and virtual topologies, each as the
// lists of peers that data goes to and comes from. It must not know CUDA or Crosslane.
#pragma once

#include "support/random.h"

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

namespace crosslane::tests {

/// One communicator as this rank sees it.
struct Group {
  enum class Kind { intra, inter, topology };
  MPI_Comm comm = MPI_COMM_NULL;
  Kind kind = Kind::intra;
  std::string text;
  int rank = 0, size = 1;
  int side = 0;                  ///< of an inter-communicator: 0 or 1
  bool has_lonely_rank = false;  ///< one of the communicators of this place has one rank only
  bool directed = false;         ///< a topology of directed edges
  int sizes[2] = {0, 0};         ///< ranks on either side (intra: [0])
  std::vector<int> local;        ///< own group, as ranks of MPI_COMM_WORLD
  std::vector<int> in, out;      ///< whom data comes from and goes to, likewise; -1 for MPI_PROC_NULL
};

/// Made once, in the same order on all ranks. Construction and destruction are collective.
class Groups {
 public:
  explicit Groups(Random& common);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  /// One of a kind; every rank of MPI_COMM_WORLD is in one of that place (ranks of a split are in different ones).
  [[nodiscard]] const Group& pick(Random& common, Group::Kind kind) const;
  [[nodiscard]] bool has(Group::Kind kind) const { return !of(kind).empty(); }

 private:
  [[nodiscard]] const std::vector<Group>& of(Group::Kind kind) const { return groups_[static_cast<std::size_t>(kind)]; }
  void add(MPI_Comm comm, Group::Kind kind, std::string text);
  void add_topologies(Random& common, int rank, int size);
  std::vector<Group> groups_[3];
};

}  // namespace crosslane::tests
