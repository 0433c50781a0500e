// An error that MPI has raised itself, in a call of ours: an error handler has been called with its code by then. Whoever ends the
// application's call returns that code, and raises nothing more (interpose/route.h). It must not know who raises errors, and how.
#pragma once

#include "base/error.h"
#include "mpi/abi.h"

#include <limits>
#include <string>

namespace crosslane::mpi {

/// What a question's answer is set to before: MPICH 5.0 returns success where a handler of the application's has heard of the error.
inline constexpr int untold = std::numeric_limits<int>::min();
/// Whether MPI, which returned `code`, has raised an error in place of an answer. That is read last: the same expression may fill it in.
[[nodiscard]] inline bool refused(int code, const int& answer) noexcept { return code != success || answer == untold; }

class Raised : public base::Error {
 public:
  Raised(int code, base::ErrorClass error_class, const std::string& message)
      : base::Error(error_class, message), code_(code) {}

  /// What MPI has returned.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Of a question about a communicator: throws Raised where MPI has raised an error in place of an answer, as it does each time.
inline void heed(int code, const int& answer) {
  if (refused(code, answer)) throw Raised(code, base::ErrorClass::comm, "not a communicator");
}

}  // namespace crosslane::mpi
