// A rank dies that has enqueued calls with others, which then free one communicator and leave another to MPI_Finalize: Crosslane's part of both ends.
// MPI's own does not, which waits for the dead: so who sees what Crosslane writes last kills that in the end, as the script beside this wants
// it.
#include "native/enqueued.h"
#include "support/death.h"

#include <crosslane/crosslane.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int victim = 1, count = 1000;

// CROSSLANE_TRACE of a rank.
std::string trace_of(int rank) {
  const char* const name = std::getenv("CROSSLANE_TRACE");
  const std::string file = name == nullptr ? "" : name;
  return file + "." + std::to_string(rank) + ".json";
}

void kill_once_all_have_left(pid_t process, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    while (rank != victim && access(trace_of(rank).c_str(), F_OK) != 0) sched_yield();
  fmt::print(stderr, "killing rank {}\n", victim);
  kill(process, SIGKILL);
}

int run(int argc, char** argv) {
  Program program(argc, argv, "lifecycle_left");
  alarm(50);  // a survivor that nobody ends must not outlive the test
  if (!can_prepare(program)) return program.finish();
  MPI_Comm freed = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &freed));
  Memory data(MemoryKind::device, count * sizeof(int));
  const Stream stream;
  for (const MPI_Comm communicator : {freed, MPI_COMM_WORLD}) {
    data.fill(std::vector<int>(count, 1));
    prepare(communicator, count * sizeof(int));
    CROSSLANE_MPI(
        crosslane_allreduce_enqueue(MPI_IN_PLACE, data.data(), count, MPI_INT, MPI_SUM, communicator, stream.handle()));
    stream.finish();
    CROSSLANE_CHECK(data.values<int>() == std::vector<int>(count, program.size), "the sum is wrong");
  }
  int process = getpid();
  CROSSLANE_MPI(MPI_Bcast(&process, 1, MPI_INT, victim, MPI_COMM_WORLD));
  polite_barrier();
  if (program.rank == victim) die();
  await_death(process);
  CROSSLANE_STEP("freeing a communicator");
  CROSSLANE_MPI(MPI_Comm_free(&freed));
  std::thread last;
  if (program.rank == 0) last = std::thread([&] { kill_once_all_have_left(process, program.size); });
  CROSSLANE_STEP("the end");
  MPI_Finalize();
  for (;;) pause();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
