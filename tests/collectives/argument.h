// One buffer argument of a collective: the memory that the tested call is given, a host copy for the reference, and which
// bytes of the result MPI leaves undefined. It must not know which collective it belongs to.
#pragma once

#include "collectives/reduction.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/random_types.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::tests {

/// What one rank draws its own arguments from.
struct Draw {
  Random& random;
  const Program& program;
  [[nodiscard]] MemoryKind memory() const { return program.kind(random); }
};

class Argument {
 public:
  /// A granule: the base's own type.
  static constexpr int base_type = -1;

  /// Not significant on this rank: null, or memory that must stay as it is.
  static Argument absent(Draw draw);
  static Argument in_place();
  /// `blocks` blocks of `elements` base elements each, one after the other. The type is of `granule` base elements,
  /// which divides `elements`; 0: of any divisor.
  static Argument single(Draw draw, const Base& base, int elements, int blocks, int granule);
  /// One block for each of `elements`, with gaps and in permuted order; displacements in extents of one type.
  static Argument blocks(Draw draw, const Base& base, const std::vector<int>& elements, int granule);
  /// The same with a type for each block and displacements in bytes.
  static Argument typed_blocks(Draw draw, const Base& base, const std::vector<int>& elements, int granule);
  /// `count` elements of a reduction's type, filled with values that it can reduce.
  static Argument operand(Draw draw, const Reduction& reduction, int count);

  // What the call is given.
  [[nodiscard]] void* address() const;      ///< of the tested memory
  [[nodiscard]] void* reference_address();  ///< of the host copy
  int count = 0;
  MPI_Datatype type = MPI_BYTE;
  std::vector<int> counts, displacements;
  std::vector<MPI_Count> wide_counts;
  std::vector<MPI_Aint> wide_displacements;
  std::vector<MPI_Datatype> types;

  /// Memory in place of the null pointer that an argument without data may be.
  void give_memory(Draw draw) { allocate(draw, 0, 64, false); }
  /// Elements [from, to) of an operand are undefined after the call: they are not compared.
  void undefined(const Reduction& reduction, int from, int to);
  /// Padding of an operand's elements is not compared: MPI's own reductions may copy it or not.
  void ignore_padding(const Reduction& reduction);
  /// New contents in memory and host copy, for a persistent call that is started again.
  void refill(Random& random);
  /// Brings the host copy's contents into the memory.
  void copy_reference() {
    if (kind_ == Kind::memory) memory_->write(reference_);
  }
  /// Of elements of which a call receives less: what it leaves in the others is as it likes (MPI 5.0, section 14.4: only what the status
  /// tells is defined). `packed_bytes` is what it received.
  void ignore_elements_behind(int packed_bytes);
  /// Compares all bytes, gaps too, with the host copy.
  void check(const std::string& what) const;
  /// Frees the datatypes, where the call no longer needs them.
  void release_types();
  [[nodiscard]] std::string text() const;

 private:
  enum class Kind { null, in_place, memory };
  void allocate(Draw draw, MPI_Aint low, MPI_Aint high, bool aligned);
  void place(Draw draw, const std::vector<const Type*>& used, const std::vector<int>& filled, bool in_bytes);

  Kind kind_ = Kind::null;
  std::optional<Memory> memory_;
  std::vector<std::byte> reference_;
  std::vector<std::uint8_t> ignored_;
  std::ptrdiff_t origin_ = 0;  // from the memory's start to the buffer's address
  std::vector<Type> owned_;
  const Reduction* reduction_ = nullptr;
  int operands_ = 0;
};

}  // namespace crosslane::tests
