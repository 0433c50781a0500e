// PMPI tools in the program and preloaded before or after Crosslane: each sees every call once, and results are right.
// Options: --static 1 where the program has a tool of its own; --before <file>, --after <file>: a tool to be preloaded
// before or after Crosslane, for which the program starts itself again.
#include "lifecycle/tool.h"
#include "support/program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

using namespace crosslane::tests;

namespace {

// Counts of a tool; null where it is not loaded.
ToolCounts* counts(const char* name) { return static_cast<ToolCounts*>(dlsym(RTLD_DEFAULT, name)); }

void exchange(Program& program, MemoryKind kind) {
  constexpr int elements = 1000;
  Memory mine(kind, elements * sizeof(int)), theirs(kind, elements * sizeof(int)), sum(kind, elements * sizeof(int));
  mine.fill(std::vector<int>(elements, program.rank + 1));
  const int other = 1 - program.rank;
  if (program.rank == 0) CROSSLANE_MPI(MPI_Send(mine.data(), elements, MPI_INT, other, 5, MPI_COMM_WORLD));
  CROSSLANE_MPI(MPI_Recv(theirs.data(), elements, MPI_INT, other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  if (program.rank == 1) CROSSLANE_MPI(MPI_Send(mine.data(), elements, MPI_INT, other, 5, MPI_COMM_WORLD));
  CROSSLANE_MPI(MPI_Allreduce(mine.data(), sum.data(), elements, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CROSSLANE_CHECK(theirs.values<int>() == std::vector<int>(elements, other + 1), "wrong data received in {} memory",
                  name(kind));
  CROSSLANE_CHECK(sum.values<int>() == std::vector<int>(elements, 3), "wrong sum in {} memory", name(kind));
}

void preload(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    const bool before = std::strcmp(argv[i], "--before") == 0;
    if (!before && std::strcmp(argv[i], "--after") != 0) continue;
    const char* const given = std::getenv("LD_PRELOAD");
    const std::string old = given == nullptr ? "" : given, tool = argv[i + 1];
    if (old.find(tool) != std::string::npos) return;
    setenv("LD_PRELOAD", (before ? tool + ":" + old : old + ":" + tool).c_str(), 1);
    execv("/proc/self/exe", argv);
    std::perror("execv");
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  preload(argc, argv);
  Program program(argc, argv, "tools_test");
  for (const char* tool : {"static_tool_counts", "preloaded_tool_counts"}) {
    ToolCounts* const seen = counts(tool);
    const bool expected = std::string(tool) == "preloaded_tool_counts"
                              ? !program.text_option("before", "").empty() || !program.text_option("after", "").empty()
                              : program.option("static", 0) != 0;
    CROSSLANE_CHECK((seen != nullptr) == expected, "{} is loaded: {}", tool, seen != nullptr);
  }
  for (const auto kind : {MemoryKind::host, MemoryKind::device}) {
    CROSSLANE_STEP("{} memory", name(kind));
    for (const char* tool : {"static_tool_counts", "preloaded_tool_counts"})
      if (auto* const seen = counts(tool)) *seen = {};
    exchange(program, kind);
    for (const char* tool : {"static_tool_counts", "preloaded_tool_counts"}) {
      const auto* const seen = counts(tool);
      if (seen == nullptr) continue;
      // A static tool hides its program's calls from a preloaded one of the same kind: it passes them on by PMPI.
      const bool hidden = std::string(tool) == "preloaded_tool_counts" && counts("static_tool_counts") != nullptr;
      const int each = hidden ? 0 : 1;
      CROSSLANE_CHECK(seen->send == each && seen->receive == each && seen->allreduce == each,
                      "{} saw {} sends, {} receives, {} reductions of {} each, in {} memory", tool, seen->send,
                      seen->receive, seen->allreduce, each, name(kind));
    }
  }
  return program.finish();
}
