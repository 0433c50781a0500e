// A profiling tool beside Crosslane, linked into the program or, with --tool before|after --library <path>, preloaded
// before or after everything else: results are right and the tool counts each call of the program exactly once.
// It must not know Crosslane.
#include "exchange.h"
#include "support/preload.h"

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

// The tool's place is chosen in the rank itself, among whatever the launcher preloads, real driver or emulated one.
void preload_tool(int argc, char** argv) {
  std::string place, library;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (argv[i] == std::string_view("--tool")) place = argv[i + 1];
    if (argv[i] == std::string_view("--library")) library = argv[i + 1];
  }
  if (place.empty()) return;
  preload_again(argv, [&](const std::string& others) {
    if (others.find(library) != std::string::npos) return others;
    return others.empty() ? library : place == "before" ? library + ':' + others : others + ':' + library;
  });
}

// A window, whose making and freeing come by the tool, and memory in it that the other rank stores to.
void use_window(Program& program) {
  CROSSLANE_STEP("a dynamic window");
  constexpr int count = 100;
  Memory memory(program.memory() == "host" ? MemoryKind::host : MemoryKind::device, count);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_attach(window, memory.data(), count));
  MPI_Aint mine = 0, theirs = 0;
  CROSSLANE_MPI(MPI_Get_address(memory.data(), &mine));
  const int other = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  CROSSLANE_MPI(
      MPI_Sendrecv(&mine, 1, MPI_AINT, before, 0, &theirs, 1, MPI_AINT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  const std::vector<std::byte> sent(count, static_cast<std::byte>(program.rank + 1));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Put(sent.data(), count, MPI_BYTE, other, theirs, count, MPI_BYTE, window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
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
  preload_tool(argc, argv);
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
  use_window(program);
  return program.finish();
}
