// See array.h.
#include "layout/array.h"

#include "base/error.h"

#include <algorithm>
#include <cstddef>

namespace crosslane::layout {
namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw base::Error(base::ErrorClass::type, "the array is larger than 64-bit displacements reach");
  }
  return result;
}

// Those of `dimension.size` nodes, `stride` bytes apart, that process `coordinate` of the dimension holds.
NodePointer share(const NodePointer& node, std::int64_t stride, const DistributedArray::Dimension& dimension,
                  std::int64_t coordinate) {
  using Kind = DistributedArray::Kind;
  const std::int64_t size = dimension.size;
  const std::int64_t processes = dimension.processes;
  switch (dimension.kind) {
    case Kind::none:
      return repeat(node, static_cast<std::uint64_t>(size), stride);
    case Kind::block: {
      const std::int64_t length = dimension.argument != 0 ? dimension.argument : (size + processes - 1) / processes;
      const std::int64_t start = coordinate * length;
      const std::int64_t mine = std::clamp<std::int64_t>(size - start, 0, length);
      if (mine == 0) return empty();
      return shift(repeat(node, static_cast<std::uint64_t>(mine), stride), product(start, stride));
    }
    case Kind::cyclic: {
      const std::int64_t length = dimension.argument != 0 ? dimension.argument : 1;
      const std::int64_t period = length * processes;
      const std::int64_t start = coordinate * length;
      if (start >= size) return empty();
      // Whole blocks, and what is left of one at the array's end.
      const std::int64_t whole = size - start < length ? 0 : (size - start - length) / period + 1;
      const std::int64_t next = start + whole * period;
      const std::int64_t rest = std::clamp<std::int64_t>(size - next, 0, length);
      const Placed parts[] = {
          {product(start, stride), repeat(repeat(node, static_cast<std::uint64_t>(length), stride),
                                          static_cast<std::uint64_t>(whole), product(period, stride))},
          {product(next, stride), repeat(node, static_cast<std::uint64_t>(rest), stride)}};
      return join(parts);
    }
  }
  return empty();
}

}  // namespace

NodePointer subarray(const NodePointer& element, std::int64_t extent, const Subarray& array) {
  NodePointer node = element;
  std::int64_t stride = extent;
  const std::size_t dimensions = array.sizes.size();
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t d = array.fortran ? i : dimensions - 1 - i;  // from the fastest on
    node = shift(repeat(node, static_cast<std::uint64_t>(array.subsizes[d]), stride), product(array.starts[d], stride));
    stride = product(stride, array.sizes[d]);
  }
  return node;
}

NodePointer darray(const NodePointer& element, std::int64_t extent, const DistributedArray& array) {
  // Ranks are laid out over the grid with the last dimension fastest, whatever the array's order.
  const std::size_t dimensions = array.dimensions.size();
  std::vector<std::int64_t> coordinates(dimensions);
  std::int64_t rank = array.rank;
  for (std::size_t i = dimensions; i-- > 0;) {
    coordinates[i] = rank % array.dimensions[i].processes;
    rank /= array.dimensions[i].processes;
  }
  NodePointer node = element;
  std::int64_t stride = extent;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t d = array.fortran ? i : dimensions - 1 - i;
    node = share(node, stride, array.dimensions[d], coordinates[d]);
    stride = product(stride, array.dimensions[d].size);
  }
  return node;
}

}  // namespace crosslane::layout
