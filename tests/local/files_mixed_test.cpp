// Collective calls on one file, over and over, to which some ranks pass GPU memory, others host memory, one nothing: MPIs that call their own
// collectives meanwhile, on communicators of their own, do so inside of a wrapped call here and of a forwarded one there.
#include "support/program.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <numeric>

using namespace crosslane::tests;

namespace {

constexpr int rounds = 80;  // more than ranks of a team may be apart in calls
constexpr int count = 100;

// Later collectives of the job may go between GPUs.
void warm_up(Program& program) {
  Memory data(MemoryKind::device, count * sizeof(int));
  data.fill(std::vector<int>(count, program.rank));
  for (int call = 0; call < 4; ++call)
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
}

void run(Program& program) {
  warm_up(program);
  std::array<char, 4096> path{};
  if (program.rank == 0) {
    const char* const folder = std::getenv("TMPDIR");
    fmt::format_to_n(path.data(), path.size() - 1, "{}/crosslane-mixed-{}", folder == nullptr ? "/tmp" : folder,
                     getpid());
  }
  CROSSLANE_MPI(MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD));
  MPI_File file = MPI_FILE_NULL;
  CROSSLANE_MPI(MPI_File_open(MPI_COMM_WORLD, path.data(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  Memory memory(program.rank == 0 ? MemoryKind::device : MemoryKind::host, count * sizeof(int));
  const bool nothing = program.rank == program.size - 1;
  void* const buffer = nothing ? nullptr : memory.data();
  const int mine = nothing ? 0 : count;
  const auto place = static_cast<MPI_Offset>(program.rank * count * sizeof(int));
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {}", round);
    std::vector<int> numbers(count);
    std::iota(numbers.begin(), numbers.end(), round * 1000 + program.rank);
    memory.fill(numbers);
    CROSSLANE_MPI(MPI_File_write_at_all(file, place, buffer, mine, MPI_INT, MPI_STATUS_IGNORE));
    memory.fill(std::vector<int>(count, -1));
    CROSSLANE_MPI(MPI_File_read_at_all(file, place, buffer, mine, MPI_INT, MPI_STATUS_IGNORE));
    if (!nothing) CROSSLANE_CHECK(memory.values<int>() == numbers, "what was written is read");
  }
  CROSSLANE_MPI(MPI_File_close(&file));
  std::error_code ignored;
  if (program.rank == 0) std::filesystem::remove(path.data(), ignored);
}

}  // namespace

int main(int argc, char** argv) {
  Program program(argc, argv, "files_mixed");
  run(program);
  return program.finish();
}
