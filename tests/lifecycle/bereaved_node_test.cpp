// A rank dies before a collective among nodes, of which its own has another rank: both that one, which speaks for the node, and the ranks of the other
// nodes get an error, in this call and in later ones. With CROSSLANE_NODE_SIZE=2, and a preferred algorithm, without
// which no call goes among nodes.
#include "bereaved.h"
#include "support/direct_calls.h"
#include "support/program.h"

#include <unistd.h>

#include <string>
#include <vector>

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  constexpr int victim = 1, speaker = 0, elements = 5000;
  Program program(argc, argv, "lifecycle_bereaved_node");
  alarm(50);  // a survivor that nobody ends must not outlive the test
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Memory data(MemoryKind::device, elements * sizeof(int));
  data.fill(std::vector<int>(elements, program.rank));
  const auto broadcast = [&] { return MPI_Bcast(data.data(), elements, MPI_INT, speaker, MPI_COMM_WORLD); };
  const auto before = direct_calls("broadcast");
  for (int call = 0; call < 3; ++call) {
    CROSSLANE_MPI(broadcast());
    polite_barrier();
  }
  CROSSLANE_CHECK(direct_calls("broadcast") > before, "none goes direct");
  const Words words;
  int process = getpid();
  CROSSLANE_MPI(MPI_Bcast(&process, 1, MPI_INT, victim, MPI_COMM_WORLD));
  polite_barrier();
  if (program.rank == victim) die();
  await_death(process);
  for (const bool first : {true, false}) {
    CROSSLANE_STEP("the {} call without it", first ? "first" : "second");
    const int code = broadcast();
    const std::string text = code == MPI_SUCCESS ? "no error" : describe_mpi_error(code);
    const bool named = text.find(program.rank == speaker ? "rank 1 " : "rank 0 of MPI_COMM_WORLD, on another node,") !=
                       std::string::npos;
    CROSSLANE_CHECK(first ? named : code != MPI_SUCCESS, "{}", text);
  }
  CROSSLANE_STEP("the others have heard of it");
  for (int rank = victim + 1; rank < program.size; ++rank) {
    int failed = failures();
    if (program.rank == rank) CROSSLANE_MPI(MPI_Send(&failed, 1, MPI_INT, speaker, 1, MPI_COMM_WORLD));
    if (program.rank == speaker)
      CROSSLANE_MPI(MPI_Recv(&failed, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  constexpr int ends = 1;  // the speaker: ranks of other nodes wait for the dead one there (docs/troubleshooting.md)
  finalize_beside(process, ends, words);
}
