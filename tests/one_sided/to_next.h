// One-sided communication round the ring of ranks. It must not know what the memory is, nor Crosslane.
#pragma once

#include "support/program.h"

namespace crosslane::tests {

/// Where the next rank's memory is, in a dynamic window: each rank tells the one before it.
[[nodiscard]] MPI_Aint address_at_next(const Program& program, const Memory& memory);

/// By all ranks, between two fences: so many bytes go to that place of the next rank in the window.
void put_to_next(const Program& program, MPI_Win window, const void* from, int bytes, MPI_Aint place);

}  // namespace crosslane::tests
