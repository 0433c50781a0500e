// Whether a request is complete, asked by who is not to complete it.
#pragma once

#include "interpose/process.h"

namespace crosslane::interpose {

/// MPI_Request_get_status for the library's own use: nothing is raised. What is wrong with a message is for the call that completes it to
/// raise, on the message's communicator; MPICH raises it here, too, and on MPI_COMM_WORLD (4.0) or MPI_COMM_SELF (5.0), whose handlers end
/// the program unless it has set others. Where several threads may call MPI it does so still: they share the handlers.
[[nodiscard]] int query(Process& process, MPI_Request request, int* flag, MPI_Status* status);

}  // namespace crosslane::interpose
