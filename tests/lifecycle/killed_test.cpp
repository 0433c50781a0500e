// Ranks that exchange and reduce GPU memory until one of them is killed without warning, somewhere in the middle of what it
// receives; the script beside this looks at how the others end. It must not know Crosslane.
#include "support/program.h"

#include <unistd.h>

#include <csignal>
#include <vector>

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_killed");
  alarm(50);  // a survivor that nobody ends must not outlive the test
  constexpr int elements = 1 << 18, rounds = 3;
  Memory out(program.kind(), elements * sizeof(int)), in(program.kind(), elements * sizeof(int));
  out.fill(std::vector<int>(elements, program.rank));
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  for (int round = 0;; ++round) {
    CROSSLANE_STEP("round {}", round);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    CROSSLANE_MPI(MPI_Irecv(in.data(), elements, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[0]));
    CROSSLANE_MPI(MPI_Isend(out.data(), elements, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[1]));
    CROSSLANE_MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CROSSLANE_CHECK(in.values<int>() == std::vector<int>(elements, left), "round {}", round);
    if (round == rounds && program.rank == 1) {
      CROSSLANE_MPI(MPI_Irecv(in.data(), elements, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[0]));
      for (int looks = program.local().between(0, 100), flag = 0; looks > 0; --looks)
        CROSSLANE_MPI(MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE));
      fmt::print(stderr, "killing rank 1\n");
      kill(getpid(), SIGKILL);
    }
    // Who hears of the death by an error waits for the end; the launcher brings it.
    if (round == rounds) CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    const auto lives = [](int code) {
      while (code != MPI_SUCCESS) pause();
    };
    lives(MPI_Sendrecv(out.data(), elements, MPI_INT, left, 2, in.data(), elements, MPI_INT, right, 2, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(in.values<int>() == std::vector<int>(elements, right), "round {}, both at once", round);
    lives(MPI_Allreduce(out.data(), in.data(), elements, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  }
}
