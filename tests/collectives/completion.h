// Completing requests in random order by every procedure that completes or queries them. It must not know Crosslane.
#pragma once

#include "support/random.h"

#include <mpi.h>

#include <vector>

namespace crosslane::tests {

/// Completes all of `requests`, nonblocking or started persistent ones. Mostly tests and yields, since waiting MPIs spin.
/// Arrays hold completed requests too, but no inactive persistent ones: MPICH 4.0 reports those of collectives again.
void complete_in_random_order(std::vector<MPI_Request>& requests, Random& random, bool persistent);

}  // namespace crosslane::tests
