// One rank's Crosslane cannot begin, which shows behind all that the ranks do together in MPI_Init: all of them hear of it there, and go on with the
// MPI alone, as a rank does that goes without. --library <path> of the MPI that does that (late_mpi.cpp). It must not know Crosslane.
#include "support/check.h"
#include "support/plain_mpi.h"
#include "support/preload.h"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int victim = 1;

// What ranks whose Crosslane is on begin by telling each other.
void make_window(int rank, int size) {
  CROSSLANE_STEP("a window of host memory");
  std::vector<int> memory(1, -1);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create(memory.data(), sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_CHECK_EQUAL(memory.front(), (rank + size - 1) % size);
  CROSSLANE_MPI(MPI_Win_free(&window));
}

int run(int argc, char** argv) {
  preload_again_with(argv, argument(argc, argv, "--library"));
  const auto fail = reinterpret_cast<void (*)(bool)>(dlsym(RTLD_DEFAULT, "crosslane_test_fail_late"));
  CROSSLANE_CHECK(fail != nullptr, "the MPI that fails is not loaded");
  if (fail == nullptr) return 1;
  alarm(50);  // whoever waits for others in vain
  fail(rank_of_launcher() == victim);
  const int code = MPI_Init(&argc, &argv);
  fail(false);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  describe_process("lifecycle_late", rank, 0);
  const std::string text = code == MPI_SUCCESS ? "no error" : describe_mpi_error(code);
  const std::string_view named = rank == victim ? "MPI_Comm_set_attr" : "rank 1 of MPI_COMM_WORLD";
  CROSSLANE_CHECK(text.find(named) != std::string::npos, "{}", text);
  if (plain_mpi_has_windows(MPI_COMM_WORLD)) make_window(rank, size);
  int mine = failures(), all = 0;
  CROSSLANE_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CROSSLANE_MPI(MPI_Finalize());
  return all == 0 && failures() == mine ? 0 : 1;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
