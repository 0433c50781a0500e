// What a file's view says of how its bytes relate to those in memory (MPI 5.0, sections 14.3 and 14.5).
#pragma once

#include "interpose/process.h"

namespace crosslane::interpose {

/// True if the status of a read tells how much of the memory was written. Not where the file holds other representations of data than memory does,
/// whose bytes it counts; nor, of ROMIO, where the view has holes, for all was read then by its status, also past the end of the file.
[[nodiscard]] bool status_tells(Process& process, MPI_File file);

}  // namespace crosslane::interpose
