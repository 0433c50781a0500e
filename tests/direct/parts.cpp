// See parts.h.
#include "direct/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace crosslane::tests {

int run_part(int argc, char** argv, const std::string& program, std::initializer_list<Part> parts) {
  const std::string_view what = argc > 2 && std::string_view(argv[1]) == "--what" ? argv[2] : "";
  const auto* const part = std::ranges::find(parts, what, &Part::name);
  if (part == parts.end()) {
    fmt::print(stderr, "{}: no part '{}': pass --what and one of", program, what);
    for (const Part& known : parts) fmt::print(stderr, " {}", known.name);
    fmt::print(stderr, ", first\n");
    return 2;
  }
  if (part->before != nullptr) part->before();
  Program running(argc, argv, program, part->thread_level);
  part->run(running);
  return running.finish();
}

void only_last_rank_fails() {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? -1 : std::atoi(text);
  };
  for (const auto& [rank, size] : {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}})
    if (number(rank) >= 0 && number(rank) != number(size) - 1) unsetenv("CROSSLANE_EMULATED_FAULTS");
}

}  // namespace crosslane::tests
