// Random reductions: every predefined operation on the types that it takes, and user-defined ones, commutative or not,
// also on non-contiguous types. Values are such that the order of evaluation cannot be seen, unless MPI fixes it.
// It must not know CUDA or Crosslane.
#pragma once

#include "support/random_types.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace crosslane::tests {

/// An operation with a type that it takes, equal on all ranks that draw from the same random numbers.
struct Reduction {
  MPI_Op op = MPI_OP_NULL;
  Type type;
  const Base* base = nullptr;
  std::string text;
  /// Writes one random value of the base type.
  void (*fill)(Random& random, std::byte* value) = nullptr;
};

/// Lives as long as any call with its operation. Types of user-defined operations must be alive while a call runs.
class Reductions {
 public:
  Reductions();
  ~Reductions();
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;

  /// A random one; hold it for as long as calls with it run.
  [[nodiscard]] std::shared_ptr<Reduction> pick(Random& common, bool user_defined) const;

 private:
  MPI_Op user_commutative_ = MPI_OP_NULL, user_ordered_ = MPI_OP_NULL;
};

}  // namespace crosslane::tests
