// Completing what is under way: some of it one by one, some in arrays, by every procedure that does. It must not know what the requests
// are for.
#pragma once

#include "point_to_point/short/transfer.h"

#include <mpi.h>

#include <deque>
#include <vector>

namespace crosslane::tests {

/// One of several requests to complete together.
struct Item {
  MPI_Request* request;
  MPI_Status* status;  ///< Null: ignored.
  bool persistent;
};
[[nodiscard]] Item item(Incoming& one);
[[nodiscard]] Item item(Outgoing& one);

void complete_all(Random& local, std::vector<Item> items);

/// What is only matched is received first. Those without a request are left alone.
void complete_all(Random& local, std::deque<Incoming>& receives, std::deque<Outgoing>& sends);

}  // namespace crosslane::tests
