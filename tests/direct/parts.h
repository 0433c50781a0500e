// Test programs of several parts, of which --what names the one to run: it comes first on the command line, since a part may want
// something before MPI and the driver start.
#pragma once

#include "support/program.h"

#include <initializer_list>
#include <string>
#include <string_view>

namespace crosslane::tests {

struct Part {
  std::string_view name;
  void (*run)(Program&);
  int thread_level = MPI_THREAD_SINGLE;
  void (*before)() = nullptr;  ///< Before MPI and the driver start.
};

/// Returns the program's exit status: 2 if there is no such part.
[[nodiscard]] int run_part(int argc, char** argv, const std::string& program, std::initializer_list<Part> parts);

/// For Part::before: the world's last rank alone keeps CROSSLANE_EMULATED_FAULTS.
void only_last_rank_fails();

}  // namespace crosslane::tests
