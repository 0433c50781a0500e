// Communication by which tests of refused calls show that MPI is usable.
#pragma once

#include "support/program.h"

namespace crosslane::tests {

/// GPU memory goes round MPI_COMM_WORLD, and arrives.
void still_usable(const Program& program);
/// The same until ranks know what they can read of each other.
void meet(const Program& program);

}  // namespace crosslane::tests
