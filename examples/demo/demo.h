// What the parts of the demo share: the list of checks, and the values that ranks send each other.
#pragma once

#include "device_vector.h"

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace demo {

inline constexpr int length = 1000;  // elements of a message; not a round number of anything

/// One procedure, and a call of it on GPU memory that says whether the result is right on this rank.
struct Check {
  std::string procedure;
  std::function<bool()> right;
};

struct World {
  int rank = 0;
  int size = 1;
  [[nodiscard]] int left() const { return (rank + size - 1) % size; }
  [[nodiscard]] int right() const { return (rank + 1) % size; }
};

/// What rank `from` sends: `count` values that tell sender and place.
inline std::vector<int> message(int from, int count = length, int salt = 0) {
  std::vector<int> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = 1'000'000 * (from + 1) + 7 * i + salt;
  return values;
}

inline void append(std::vector<int>& all, const std::vector<int>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

/// Waits for a nonblocking call.
inline void finish(MPI_Request& request) { MPI_Wait(&request, MPI_STATUS_IGNORE); }

void add_point_to_point(std::vector<Check>& checks, const World& world);
void add_collectives(std::vector<Check>& checks, const World& world);
void add_neighbourhoods(std::vector<Check>& checks, const World& world);
void add_local(std::vector<Check>& checks, const World& world);

}  // namespace demo
