// Calls of ours whose errors are ours to handle.
#pragma once

#include "mpi/functions.h"

namespace crosslane::mpi {

/// While one lives the errors of calls on a communicator are returned: a program may have the MPI end it where a call fails that it has
/// not made. For one thread: another one's errors would be returned as well, and a handler that it sets lost.
class ReturnsErrors {
 public:
  ReturnsErrors(const Functions& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {
    mpi_.Comm_get_errhandler(comm_, &handler_);
    mpi_.Comm_set_errhandler(comm_, mpi_.handles->errors_return);
  }
  ~ReturnsErrors() {
    mpi_.Comm_set_errhandler(comm_, handler_);
    mpi_.Errhandler_free(&handler_);
  }
  ReturnsErrors(const ReturnsErrors&) = delete;
  ReturnsErrors& operator=(const ReturnsErrors&) = delete;

 private:
  const Functions& mpi_;
  const MPI_Comm comm_;
  MPI_Errhandler handler_{};
};

/// The same of calls on requests alone, whose errors an MPI raises on MPI_COMM_SELF (as MPI 4.0 has it) or, if it is older, on MPI_COMM_WORLD.
class ReturnsErrorsOfRequests {
 public:
  explicit ReturnsErrorsOfRequests(const Functions& mpi)
      : world_(mpi, mpi.handles->comm_world), self_(mpi, mpi.handles->comm_self) {}

 private:
  const ReturnsErrors world_, self_;
};

}  // namespace crosslane::mpi
