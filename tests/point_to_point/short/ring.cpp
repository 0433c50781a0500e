// See ring.h.
#include "point_to_point/short/ring.h"

#include <chrono>
#include <thread>

namespace crosslane::tests {

Ring::Ring(Program& of, bool only_tokens)
    : program(of), tokens_only(only_tokens), left((of.rank + of.size - 1) % of.size), right((of.rank + 1) % of.size) {
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator));
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &returning));
  CROSSLANE_MPI(MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN));
  // Where MPI_Test raises a truncation is the MPI's choice: MPICH takes MPI_COMM_WORLD or SELF.
  CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
}

Ring::~Ring() {
  MPI_Comm_free(&communicator);
  MPI_Comm_free(&returning);
}

void Ring::step(const std::string& what) const { CROSSLANE_STEP("case {}: {}", case_number, what); }

void Ring::sleep() {
  if (local().chance(15)) std::this_thread::sleep_for(std::chrono::microseconds{local().between(100, 7000)});
}

}  // namespace crosslane::tests
