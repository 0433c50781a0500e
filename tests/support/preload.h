// Which libraries are loaded ahead of a program's own is settled when it starts: so a program starts itself again. Call it first of all in
// main(). It must not know MPI, CUDA or Crosslane.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace crosslane::tests {

/// Starts the program again with LD_PRELOAD as `change` makes it of what stands there, unless it makes the same of it. Ends the program where
/// that fails.
void preload_again(char** argv, const std::function<std::string(const std::string& libraries)>& change);

/// The same with one library more, behind the others or before them.
void preload_again_with(char** argv, const std::string& library, bool before = false);

/// What stands behind `name` among a program's arguments, which are pairs; "" if nothing does.
[[nodiscard]] std::string argument(int argc, char** argv, std::string_view name);

/// Of a list as in LD_PRELOAD, without the libraries whose file names begin so.
[[nodiscard]] std::string without(const std::string& libraries, const std::string& beginning);

/// This process's number in MPI_COMM_WORLD as its launcher tells it before MPI_Init.
[[nodiscard]] int rank_of_launcher();

}  // namespace crosslane::tests
