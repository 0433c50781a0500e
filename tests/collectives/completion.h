// Completing requests in random order by every procedure that completes or queries them. It must not know Crosslane.
#pragma once

#include "support/random.h"

#include <mpi.h>

#include <vector>

namespace crosslane::tests {

/// Completes all of `requests`, nonblocking or started persistent ones. Mostly tests and yields, since waiting MPIs spin.
/// Arrays hold completed requests too; of persistent ones, inactive ones only where the MPI takes them for such.
void complete_in_random_order(std::vector<MPI_Request>& requests, Random& random, bool persistent);

}  // namespace crosslane::tests
