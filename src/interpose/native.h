// The bodies of crosslane.h: what they check, and in whose name they fail. It must not know how a call is enqueued.
#pragma once

#include "gpu/driver.h"
#include "interpose/process.h"
#include "interpose/role.h"

namespace crosslane::interpose::native {

/// Each throws Error; none calls an error handler.
void prepare(Process& process, MPI_Comm comm, MPI_Count bytes, int count, void* const buffers[]);
[[nodiscard]] int missing(Process& process, MPI_Comm comm);
void enqueue(Process& process, const CollectiveCall& call, CUstream stream);

}  // namespace crosslane::interpose::native
