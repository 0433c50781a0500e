// A set of communicators over which a message from one rank to another can go. It must not know CUDA or Crosslane.
#pragma once

#include "support/random.h"

#include <mpi.h>

#include <string>
#include <vector>

namespace crosslane::tests {

/// One way from a rank to another: the communicator, and what each calls the other.
struct Link {
  MPI_Comm communicator = MPI_COMM_NULL;
  int source = 0;       ///< The sender's rank, as the receiver names it.
  int destination = 0;  ///< The receiver's rank, as the sender names it.
  std::string text;
};

/// MPI_COMM_WORLD, a duplicate, a split with reversed ranks, MPI_COMM_SELF, and with two or more ranks an
/// intercommunicator between the lower and the upper half. Construction and destruction are collective.
class Communicators {
 public:
  Communicators();
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// All ways from one rank of MPI_COMM_WORLD to another, in an order that all ranks agree on.
  [[nodiscard]] std::vector<Link> links(int from, int to) const;
  /// For the test's own messages between host buffers.
  [[nodiscard]] MPI_Comm control() const { return control_; }
  [[nodiscard]] MPI_Comm duplicate() const { return duplicate_; }

 private:
  int size_ = 1;
  MPI_Comm control_ = MPI_COMM_NULL, duplicate_ = MPI_COMM_NULL, reversed_ = MPI_COMM_NULL, halves_ = MPI_COMM_NULL;
};

}  // namespace crosslane::tests
