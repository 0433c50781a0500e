// What every benchmark that is an MPI program shares: its start and end, and measuring its columns in turns.
// It must not know what is measured.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace crosslane::bench {

/// This rank in MPI_COMM_WORLD, how many there are, and its number on its node.
struct World {
  int rank = 0, ranks = 1, local = 0;
  /// Needs MPI_Init; collective.
  static World find();
};

/// MPI_Init, `run` with the command line, MPI_Finalize; what `run` throws is printed behind `name`, and ends all ranks.
/// The process's exit status.
int mpi_program(const char* name, int count, char** words, void (*run)(int count, char** words));

/// The largest of all ranks' values. Collective.
[[nodiscard]] double most_of_all(double value);

/// Throws on all ranks, with `what`, if this is wrong on any. Collective.
void demand_everywhere(bool right, const std::string& what);

/// Measures columns in turns, and who goes first changes from run to run. Seconds: a list of runs for each column.
/// `once` gives the seconds of one operation of a column, equal on all ranks; the first round warms up and is not kept.
/// `row` hears of each kept time, as it comes.
[[nodiscard]] std::vector<std::vector<double>> in_turns(
    std::size_t columns, int runs, const std::function<double(std::size_t column)>& once,
    const std::function<void(std::size_t column, int run, double seconds)>& row);

/// Seconds of one `operation`, all ranks starting together, the slowest rank's: as many in a row as `repeats` says.
[[nodiscard]] double seconds_of(int repeats, const std::function<void()>& operation);

/// How many operations of so many seconds make up `budget` seconds, 1 to `most`.
[[nodiscard]] int repeats_for(double seconds, double budget, int most);

}  // namespace crosslane::bench
