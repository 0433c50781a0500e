// Random MPI datatypes for tests: derived, non-contiguous, resized, with negative lower bounds; many types of one
// signature, each with the byte offsets of its basic elements. It must not know CUDA or Crosslane.
#pragma once

#include "support/random.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace crosslane::tests {

/// What a random type is built from: a basic type, a predefined pair, or a structure with gaps.
struct Base {
  std::string name;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::size_t extent = 0;
  std::vector<std::uint8_t> padding;  ///< for each byte of the extent: 1 where it carries nothing
};

/// Basic types, pairs and structures: what may be sent. Made on first use, never freed.
const std::vector<Base>& bases();

/// One committed datatype and where its base elements lie.
class Type {
 public:
  Type() = default;
  ~Type() { release(); }
  Type(Type&& other) noexcept;
  Type& operator=(Type&& other) noexcept;

  MPI_Datatype handle = MPI_DATATYPE_NULL;
  std::vector<MPI_Aint> offsets;  ///< of its base elements, in the order of the type map
  MPI_Aint lb = 0, extent = 0, true_lb = 0, true_ub = 0;
  std::int64_t most = std::numeric_limits<int>::max();  ///< elements that may follow each other without overlap
  std::string text;

  [[nodiscard]] int elements() const { return static_cast<int>(offsets.size()); }
  /// First and last byte (past the end) that `count` elements touch, from the buffer's address.
  [[nodiscard]] MPI_Aint begin(std::int64_t count) const;
  [[nodiscard]] MPI_Aint end(std::int64_t count) const;
  /// Gives the handle back to the MPI, where it was made for this object; legal as soon as a call has used it.
  void release();

 private:
  friend Type random_type(Random& random, const Base& base, int elements);
  bool owned_ = false;
};

/// A type of exactly `elements` base elements.
[[nodiscard]] Type random_type(Random& random, const Base& base, int elements);

/// The base's own type.
[[nodiscard]] Type base_type_of(const Base& base);

/// A random divisor of `number` (which must be positive), at most `most`.
[[nodiscard]] int random_divisor(Random& random, int number, int most);

}  // namespace crosslane::tests
