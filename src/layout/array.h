// Sub-arrays and distributed arrays (MPI 5.0, sections 5.1.3 and 5.1.4) as nodes.
// It must not know how MPI hands their description over.
#pragma once

#include "layout/node.h"

#include <cstdint>
#include <vector>

namespace crosslane::layout {

/// Elements [start, start + subsize) of each dimension. The last dimension is the fastest in C's order, the first in
/// Fortran's.
struct Subarray {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> subsizes;
  std::vector<std::int64_t> starts;
  bool fortran = false;
};

/// One process's part of an array that is distributed over a grid of processes, as High Performance Fortran does it.
struct DistributedArray {
  enum class Kind { none, block, cyclic };
  struct Dimension {
    std::int64_t size;  ///< elements of the whole array
    Kind kind;
    int argument;   ///< elements a block; 0 for the default
    int processes;  ///< of the grid in this dimension
  };
  int processes = 1;
  int rank = 0;
  std::vector<Dimension> dimensions;
  bool fortran = false;
};

NodePointer subarray(const NodePointer& element, std::int64_t extent, const Subarray& array);
NodePointer darray(const NodePointer& element, std::int64_t extent, const DistributedArray& array);

}  // namespace crosslane::layout
