// What MPI_Type_get_contents says about one datatype, in one form for the plain and the large-count procedures.
// It must not know what the numbers mean for the layout.
#pragma once

#include "mpi/abi.h"
#include "mpi/functions.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::layout {

/// Which constructor made a type, and how many arguments it had.
struct Envelope {
  mpi::Combiner combiner = mpi::Combiner::named;
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count counts = 0;  ///< only of constructors with large counts
  MPI_Count types = 0;

  /// Types that belong to the MPI: they have no contents to ask for (or none of use), and must not be freed.
  [[nodiscard]] bool predefined() const noexcept;
};

[[nodiscard]] Envelope envelope_of(const mpi::Functions& below, MPI_Datatype type);

/// The constructor's arguments, read in order. Counts and displacements come from wherever this form keeps them.
class Contents {
 public:
  Contents(const mpi::Functions& below, MPI_Datatype type, const Envelope& envelope);

  [[nodiscard]] const std::vector<MPI_Datatype>& types() const noexcept { return types_; }

  /// The next argument that is a plain int in both forms.
  [[nodiscard]] int integer() { return integers_.at(next_integer_++); }
  /// The next argument that is an int in the plain form and a count in the large one.
  [[nodiscard]] std::int64_t count();
  /// The next argument that is an address in the plain form and a count in the large one.
  [[nodiscard]] std::int64_t address();

  [[nodiscard]] std::vector<int> integers(std::size_t how_many);
  [[nodiscard]] std::vector<std::int64_t> counts(std::size_t how_many);
  [[nodiscard]] std::vector<std::int64_t> addresses(std::size_t how_many);

 private:
  std::vector<int> integers_;
  std::vector<MPI_Aint> addresses_;
  std::vector<MPI_Count> counts_;
  std::vector<MPI_Datatype> types_;
  std::size_t next_integer_ = 0;
  std::size_t next_address_ = 0;
  std::size_t next_count_ = 0;
};

}  // namespace crosslane::layout
