// See mpi_program.h.
#include "common/mpi_program.h"

#include "common/record.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace crosslane::bench {

World World::find() {
  World world;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &world.local);
  MPI_Comm_free(&node);
  return world;
}

int mpi_program(const char* name, int count, char** words, void (*run)(int count, char** words)) {
  MPI_Init(&count, &words);
  try {
    run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return 0;
}

double most_of_all(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

void demand_everywhere(bool right, const std::string& what) {
  if (most_of_all(right ? 0 : 1) != 0) throw std::runtime_error(what);
}

std::vector<std::vector<double>> in_turns(std::size_t columns, int runs,
                                          const std::function<double(std::size_t column)>& once,
                                          const std::function<void(std::size_t column, int run, double seconds)>& row) {
  std::vector<std::vector<double>> seconds(columns);
  for (int run = -1; run < runs; ++run) {
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t column = (i + static_cast<std::size_t>(run + 1)) % columns;
      const double time = once(column);
      if (run < 0) continue;
      seconds[column].push_back(time);
      row(column, run, time);
    }
  }
  return seconds;
}

double seconds_of(int repeats, const std::function<void()>& operation) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begun = now_ns();
  for (int i = 0; i < repeats; ++i) operation();
  return most_of_all(static_cast<double>(now_ns() - begun) / 1e9 / repeats);
}

int repeats_for(double seconds, double budget, int most) {
  return static_cast<int>(std::clamp(budget / std::max(seconds, 1e-9), 1.0, static_cast<double>(most)));
}

}  // namespace crosslane::bench
