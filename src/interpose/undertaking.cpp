// See undertaking.h.
#include "interpose/undertaking.h"

#include "mpi/status.h"

#include <utility>

namespace crosslane::interpose {

// A message to nobody.
int lend_complete_request(Process& process, MPI_Request* request) {
  const auto& handles = process.library().handles();
  return process.library().below().Isend(nullptr, 0, handles.byte, mpi::proc_null, 0, handles.comm_self, request);
}

int lend_idle_request(Process& process, MPI_Request* request) {
  if (process.requests().lend_idle(request)) return mpi::success;
  const auto& handles = process.library().handles();
  return process.library().below().Recv_init(nullptr, 0, handles.byte, mpi::proc_null, 0, handles.comm_self, request);
}

void take_back_idle_request(Process& process, MPI_Request* request) {
  process.requests().take_back_idle(*request);
  *request = process.library().handles().request_null;
}

void finish_undertaking(Process& process, Operation& operation, MPI_Request* request, MPI_Status* status) {
  mpi::copy_but_error(operation.undertaking->status(), status);
  operation.active = false;
  if (!operation.persistent) take_back_idle_request(process, request);
  const auto undertaking = std::move(operation.undertaking);  // the next start may be MPI's
  undertaking->deliver();
  undertaking->rethrow();
}

}  // namespace crosslane::interpose
