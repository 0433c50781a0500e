// Calls of ours on an application's communicator that may fail without the application's hearing of it. It must not know which these are.
#pragma once

#include "mpi/functions.h"
#include "mpi/raised.h"

namespace crosslane::mpi {

/// A communicator of the same ranks, whose errors are returned: of the application's own other threads may use the error handler meanwhile.
/// Made and freed collectively. Throws Raised where MPI makes none.
class Aside {
 public:
  Aside(const Functions& mpi, MPI_Comm comm) : mpi_(mpi), comm_(mpi.handles->comm_null) {
    // Not a duplicate: that would run the copy callbacks of the application's attributes.
    const int code = mpi_.Comm_split(comm, 0, 0, &comm_);
    if (code != success || comm_ == mpi.handles->comm_null)
      throw Raised(code, base::ErrorClass::comm, "the MPI makes no communicator");
    mpi_.Comm_set_errhandler(comm_, mpi.handles->errors_return);
  }
  ~Aside() { mpi_.Comm_free(&comm_); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }

 private:
  const Functions& mpi_;
  MPI_Comm comm_;
};

}  // namespace crosslane::mpi
