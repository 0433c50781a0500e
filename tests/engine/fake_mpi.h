// A table of MPI functions whose requests complete when a test says so. State is global, as MPI's is: one test at a time.
#pragma once

#include "mpi/functions.h"

#include <atomic>
#include <cstddef>
#include <deque>

namespace fake {

struct Request {
  std::atomic<int> tests_left{0};  ///< It completes at this many further tests; negative: never.
  std::atomic<bool> active{true};  ///< Inactive ones are done for MPI_Test and skipped by MPI_Testsome.
  bool persistent = false;         ///< Keeps its handle when it completes.
  int error = crosslane::mpi::success;
  int source = 0;  ///< What the status says.
};

/// Counts of what was called, and the fault that no test may see: two threads in MPI's calls with requests at once.
struct Calls {
  std::atomic<int> test{0}, testsome{0}, waitsome{0}, iprobe{0}, cancel{0};
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
};

Calls& calls();

/// Forgets all requests and counts.
void reset();

/// A new active request; `handle` gets what the user would hold. Thread-safe.
Request& make(MPI_Request& handle, int tests_left);

/// The value that a completed request's handle gets.
MPI_Request null_handle();

/// The table.
crosslane::mpi::Functions functions();

}  // namespace fake
