// What a file's view says of how its bytes relate to those in memory (MPI 5.0, section 14.5).
#pragma once

#include "interpose/process.h"

namespace crosslane::interpose {

/// True if the file holds data as memory does ("native"): a status that counts bytes of the file then counts those in memory.
[[nodiscard]] bool is_native(Process& process, MPI_File file);

}  // namespace crosslane::interpose
