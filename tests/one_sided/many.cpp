// Windows that are made, used and freed again and again must leave nothing: mappings, descriptors and GPU memory are compared between the
// end of a warm-up and the end. It must not know Crosslane.
#include "one_sided/parts.h"
#include "support/plain_mpi.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

struct Footprint {
  std::int64_t descriptors = 0, mappings = 0, gpu_bytes = 0;
};

Footprint footprint(const Program& program) {
  Footprint result;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  result.descriptors = std::distance(begin(descriptors), end(descriptors));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++result.mappings;
  if (program.device() != nullptr) {
    std::size_t free = 0, total = 0;
    CROSSLANE_CUDA(cuMemGetInfo(&free, &total));
    result.gpu_bytes = static_cast<std::int64_t>(total - free);
  }
  return result;
}

void one_window(Program& program, const Memory& memory, std::int64_t round) {
  const int bytes = static_cast<int>(memory.size());
  const int right = (program.rank + 1) % program.size, left = (program.rank + program.size - 1) % program.size;
  Memory out(program.kind(), memory.size());
  out.write(pattern(mix(program.seed, program.rank, round), memory.size()));
  MPI_Win window = MPI_WIN_NULL;
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_create(memory.data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  CROSSLANE_MPI(MPI_Put(out.data(), bytes, MPI_BYTE, right, 0, bytes, MPI_BYTE, window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CROSSLANE_CHECK(memory.read() == pattern(mix(program.seed, left, round), memory.size()), "round {}, {} memory", round,
                  name(memory.kind()));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_free(&window));
}

}  // namespace

void one_sided_many(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  constexpr std::size_t bytes = 100000;
  const auto rounds = program.option("cases", 200), warm_up = rounds / 4;
  const Memory same(program.kind(), bytes);
  Footprint before;
  for (std::int64_t round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {}", round);
    if (round == warm_up) before = footprint(program);
    if (round % 2 == 0)
      one_window(program, same, round);
    else
      one_window(program, Memory(program.kind(), bytes), round);
  }
  polite_barrier();
  const auto after = footprint(program);
  if (program.rank == 0)
    fmt::print(stderr, "from {} to {} windows: {} to {} descriptors, {} to {} mappings, {} to {} bytes of the GPU\n",
               warm_up, rounds, before.descriptors, after.descriptors, before.mappings, after.mappings,
               before.gpu_bytes, after.gpu_bytes);
  // What one window leaves would be there 150 times.
  CROSSLANE_CHECK(after.descriptors - before.descriptors < 10, "descriptors grew from {} to {}", before.descriptors,
                  after.descriptors);
  CROSSLANE_CHECK(after.mappings - before.mappings < 32, "mappings grew from {} to {}", before.mappings,
                  after.mappings);
  constexpr auto few = static_cast<std::int64_t>(24 * bytes);
  CROSSLANE_CHECK(after.gpu_bytes - before.gpu_bytes < few, "GPU memory in use grew from {} to {} bytes",
                  before.gpu_bytes, after.gpu_bytes);
}

}  // namespace crosslane::tests
