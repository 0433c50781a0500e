// The elements and operations of reductions as the MPI standard defines them, combined in rank order by a few lines of plain C++.
// It must not know CUDA or Crosslane, nor ask an MPI for a result.
#pragma once

#include "support/random.h"
#include "support/random_types.h"

#include <mpi.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {

/// One class of elements. `combine` puts `a op b` into `a`, an element each.
struct Element {
  Base base;
  std::size_t alignment;
  std::vector<std::pair<std::string, MPI_Op>> ops;
  /// `whole`: numbers whose results are the same in any order and by any MPI.
  void (*fill)(Random& random, std::span<std::byte> elements, bool whole);
  void (*combine)(MPI_Op op, std::byte* a, const std::byte* b);
  bool exact;  ///< Combining in another order gives the same, whatever the numbers and the operation.
};

/// True if some of its bytes hold nothing.
[[nodiscard]] bool has_gaps(const Element& element);

/// Made on first use.
const std::vector<Element>& elements();

}  // namespace crosslane::tests
