// Split collectives on files with GPU memory (MPI 5.0, section 14.4.5): a file has at most one under way on a rank, which is
// known by its file.
#pragma once

#include "interpose/route.h"

namespace crosslane::interpose {

/// The first half: in and call now, out in the second one (manual::split_end).
int begin_split(Route& route, MPI_File file, Route::Starting invoke);

}  // namespace crosslane::interpose
