// Every algorithm of a collective in one process: settings prefer algorithms by size, so sizes that differ by a few bytes take different
// ones. It must not know how they are timed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace crosslane::bench {

/// Sizes of so many bytes, each a step larger than the one before, are taken by the algorithms in this order; what comes
/// behind them is taken by whatever the library chooses.
inline constexpr std::size_t preference_step = 16;

/// "mpi" (staged), and what the catalogue has for "allreduce", "reduce" or "bcast" of large vectors.
[[nodiscard]] std::vector<std::string> algorithms_of(const std::string& collective);

/// Sets the environment for these sizes; to be called before MPI_Init.
void prefer_each(const std::vector<long>& sizes);

}  // namespace crosslane::bench
