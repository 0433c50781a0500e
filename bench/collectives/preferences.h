// Every algorithm of a collective in one process: settings prefer algorithms by size, so sizes that differ by a few bytes take different
// ones. It must not know how they are timed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace crosslane::bench {

/// Sizes from one of these on, each so many bytes larger than the one before, are taken by the algorithms in this order; what comes behind them is
/// taken by whatever the library chooses. Of whole vectors. Of long ones every rank's part grows by a line of memory: parts that begin between
/// lines take longer, and algorithms would differ by more than what they do.
[[nodiscard]] std::size_t preference_step(const std::string& collective, std::size_t size, std::size_t ranks);
inline constexpr std::size_t most_preference_step = 128;  ///< for each rank

/// What the catalogue has for a collective, "allreduce" or "bcast" and so on; "mpi" is staged. On streams only kernels are there.
[[nodiscard]] std::vector<std::string> algorithms_of(const std::string& collective, bool on_stream);

/// Throws std::runtime_error where two of these sizes are so near that one's algorithms would take the other.
void check_apart(const std::string& collective, std::vector<long> sizes, std::size_t ranks, bool on_stream);

/// Sets the environment for these sizes of whole vectors; to be called before MPI_Init, by ranks that a launcher has told how many they are.
void prefer_each(const std::vector<long>& sizes, bool on_stream);

}  // namespace crosslane::bench
