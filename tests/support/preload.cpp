// See preload.h.
#include "support/preload.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace crosslane::tests {

void preload_again(char** argv, const std::function<std::string(const std::string& libraries)>& change) {
  constexpr const char* variable = "LD_PRELOAD";
  const char* const found = std::getenv(variable);
  const std::string now = found == nullptr ? "" : found, wanted = change(now);
  if (wanted == now) return;
  setenv(variable, wanted.c_str(), 1);
  execv("/proc/self/exe", argv);
  fmt::print(stderr, "{}: cannot start itself again\n", argv[0]);
  std::exit(2);
}

void preload_again_with(char** argv, const std::string& library, bool before) {
  preload_again(argv, [&](const std::string& others) {
    if (others.find(library) != std::string::npos) return others;
    return others.empty() ? library : before ? library + ':' + others : others + ':' + library;
  });
}

std::string argument(int argc, char** argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; i += 2)
    if (argv[i] == name) return argv[i + 1];
  return "";
}

std::string without(const std::string& libraries, const std::string& beginning) {
  std::string kept, library;
  std::istringstream all(libraries);
  while (std::getline(all, library, ':')) {
    if (library.substr(library.rfind('/') + 1).starts_with(beginning)) continue;
    kept += (kept.empty() ? "" : ":") + library;
  }
  return kept;
}

int rank_of_launcher() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  fmt::print(stderr, "the launcher does not tell a process its rank\n");
  std::exit(2);
}

}  // namespace crosslane::tests
