// Every algorithm of a collective in one process: settings prefer algorithms by size, so sizes that differ by a few bytes take different
// ones. It must not know how they are timed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace crosslane::bench {

/// Sizes that are each so many bytes larger than the one before, for every rank, are taken by the algorithms in this order; what comes behind
/// them is taken by whatever the library chooses. Whole lines of memory: between them, algorithms would differ by more than what they do.
inline constexpr std::size_t preference_step = 128;

/// What the catalogue has for a collective, "allreduce" or "bcast" and so on; "mpi" is staged. On streams only kernels are there.
[[nodiscard]] std::vector<std::string> algorithms_of(const std::string& collective, bool on_stream);

/// Sets the environment for these sizes of whole vectors; to be called before MPI_Init, by ranks that a launcher has told how many they are.
void prefer_each(const std::vector<long>& sizes, bool on_stream);

}  // namespace crosslane::bench
