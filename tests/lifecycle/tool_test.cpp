// A profiling tool beside Crosslane, linked into the program or, with --tool before|after --library <path>, preloaded
// before or after everything else: results are right and the tool counts each call of the program exactly once.
// It must not know Crosslane.
#include "exchange.h"
#include "one_sided/to_next.h"
#include "support/plain_mpi.h"
#include "support/preload.h"

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

// A window, whose making and freeing come by the tool, and memory in it that the other rank stores to.
void use_window(Program& program) {
  CROSSLANE_STEP("a dynamic window");
  constexpr int count = 100;
  Memory memory(program.memory() == "host" ? MemoryKind::host : MemoryKind::device, count);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_attach(window, memory.data(), count));
  const MPI_Aint theirs = address_at_next(program, memory);
  const int before = (program.rank + program.size - 1) % program.size;
  const std::vector<std::byte> sent(count, static_cast<std::byte>(program.rank + 1));
  put_to_next(program, window, sent.data(), count, theirs);
  CROSSLANE_CHECK(memory.read() == std::vector<std::byte>(count, static_cast<std::byte>(before + 1)),
                  "not what rank {} put", before);
  CROSSLANE_MPI(MPI_Win_detach(window, memory.data()));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_free(&window));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  // The tool's place is chosen in the rank itself, among whatever the launcher preloads, real driver or emulated one.
  if (const auto place = argument(argc, argv, "--tool"); !place.empty())
    preload_again_with(argv, argument(argc, argv, "--library"), place == "before");
  Program program(argc, argv, "lifecycle_tool");
  void* const symbol = dlsym(RTLD_DEFAULT, "crosslane_test_tool_counts");
  CROSSLANE_CHECK(symbol != nullptr, "the tool is not loaded");
  if (symbol == nullptr) return program.finish();
  auto* const counts = reinterpret_cast<void (*)(int*, int*)>(symbol);
  int expected = 0;
  for (const auto kind : {MemoryKind::host, MemoryKind::device}) {
    if (kind == MemoryKind::device && program.memory() == "host") continue;
    for (const int count : {1, 1000, 500000}) {
      exchange(program, kind, count, 3);
      expected += 3;
      int sends = 0, reductions = 0;
      counts(&sends, &reductions);
      CROSSLANE_CHECK_EQUAL(sends, expected);
      CROSSLANE_CHECK_EQUAL(reductions, expected);
    }
  }
  if (plain_mpi_has_windows(MPI_COMM_WORLD)) use_window(program);
  return program.finish();
}
