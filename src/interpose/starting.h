// Starting what MPI completes by a request: whether there is one. It must not know what is started.
#pragma once

#include "base/function_ref.h"
#include "interpose/process.h"
#include "mpi/abi.h"

namespace crosslane::interpose {

/// MPI's code. MPICH 5.0 calls a program's own error handler and, if that returns, returns success: no request was made then, and that is
/// an error all the same.
inline int start_request(Process& process, MPI_Request* request, base::FunctionRef<int()> start) {
  if (request == nullptr) return start();  // for the MPI to refuse
  const MPI_Request none = process.library().handles().request_null;
  *request = none;
  const int code = start();
  return code == mpi::success && *request == none ? mpi::error_class(base::ErrorClass::other) : code;
}

}  // namespace crosslane::interpose
