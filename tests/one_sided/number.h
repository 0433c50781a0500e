// Predefined datatypes on which operations of accumulates are tried, with the operations that are defined on them and that give one
// result only. It must not know CUDA or Crosslane.
#pragma once

#include "support/random.h"
#include "support/random_types.h"

#include <mpi.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace crosslane::tests {

struct Operator {
  std::string_view name;
  MPI_Op op = MPI_OP_NULL;
};

struct Number {
  enum class Kind { with_sign, without_sign, real, pair };

  std::string_view name;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::size_t bytes = 0;
  Kind kind = Kind::with_sign;

  /// Of one rank, which MPI keeps in order, on any bytes. Sums that may overflow, and whatever makes NaNs, are left out.
  [[nodiscard]] const std::vector<Operator>& ordered() const;
  /// Of many ranks in any order, on small numbers: none of them is MPI_REPLACE, nothing is rounded.
  [[nodiscard]] const std::vector<Operator>& commuting() const;
  /// So many small whole numbers of this type.
  [[nodiscard]] std::vector<std::byte> small(std::uint64_t seed, std::size_t count) const;
  /// For random_type().
  [[nodiscard]] Base base() const;
};

const Number& int_number();
const Number& long_number();
const Number& double_number();
const Number& byte_number();
/// Those whose every bit pattern is a number of at most this many bytes.
const Number& any_whole(Random& random, std::size_t most_bytes);
const Operator& no_operation();
const Operator& replace();

}  // namespace crosslane::tests
