// What every part of the test of short messages needs: this rank between its two neighbours, the communicators, and how far the program
// has come. It must not know how anything is sent or received, nor Crosslane.
#pragma once

#include "support/communicators.h"
#include "support/layout.h"
#include "support/program.h"

#include <mpi.h>

#include <string>

namespace crosslane::tests {

/// A tag that no message has.
inline constexpr int never_sent = 30000;

/// Construction and destruction are collective.
class Ring {
 public:
  Ring(Program& of, bool only_tokens);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] int rank() const { return program.rank; }
  [[nodiscard]] int size() const { return program.size; }
  [[nodiscard]] Random& shared() { return program.shared(); }
  [[nodiscard]] Random& local() { return program.local(); }
  [[nodiscard]] MemoryKind kind() { return program.kind(); }

  void step(const std::string& what) const;
  /// Now and then, so that a sender loses patience meanwhile.
  void sleep();

  Program& program;
  const bool tokens_only;  ///< All lengths are such that a token may stand for the payload.
  const int left, right;
  Units units;
  Communicators communicators;
  MPI_Comm communicator = MPI_COMM_NULL;  ///< Between neighbours.
  MPI_Comm returning = MPI_COMM_NULL;     ///< The same, for calls that may fail.
  int case_number = -1;                   ///< Of the case under way; -1 before the first.
};

}  // namespace crosslane::tests
