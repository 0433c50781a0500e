// The calls that the programs of this folder make: messages round the ring and reductions, in any kind of memory, with
// results checked. It must not know Crosslane.
#pragma once

#include "support/program.h"

namespace crosslane::tests {

/// `rounds` times one MPI_Send to the right neighbour and one MPI_Allreduce of `count` ints.
void exchange(Program& program, MemoryKind kind, int count, int rounds);

}  // namespace crosslane::tests
