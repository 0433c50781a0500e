// See communicators.h.
#include "support/communicators.h"

#include "support/check.h"

namespace crosslane::tests {

Communicators::Communicators() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control_));
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate_));
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &reversed_));
  if (size_ < 2) return;
  const int middle = size_ / 2;
  MPI_Comm half = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank < middle ? 0 : 1, rank, &half));
  CROSSLANE_MPI(MPI_Intercomm_create(half, 0, control_, rank < middle ? middle : 0, 1, &halves_));
  CROSSLANE_MPI(MPI_Comm_free(&half));
}

Communicators::~Communicators() {
  for (MPI_Comm* one : {&control_, &duplicate_, &reversed_, &halves_})
    if (*one != MPI_COMM_NULL) MPI_Comm_free(one);
}

std::vector<Link> Communicators::links(int from, int to) const {
  std::vector<Link> result{{MPI_COMM_WORLD, from, to, "MPI_COMM_WORLD"}, {duplicate_, from, to, "a duplicate"}};
  if (from % 2 == to % 2) {
    // Members of one parity, highest world rank first.
    const int highest = (size_ - 1) % 2 == from % 2 ? size_ - 1 : size_ - 2;
    result.push_back({reversed_, (highest - from) / 2, (highest - to) / 2, "a reversed split"});
  }
  if (from == to) result.push_back({MPI_COMM_SELF, 0, 0, "MPI_COMM_SELF"});
  const int middle = size_ / 2;
  const auto in_half = [middle](int rank) { return rank < middle ? rank : rank - middle; };
  if (size_ >= 2 && (from < middle) != (to < middle))
    result.push_back({halves_, in_half(from), in_half(to), "an intercommunicator"});
  return result;
}

}  // namespace crosslane::tests
