// The datatypes of the ping-pongs (TYPES, section 5.2), of matrices of doubles whose columns are contiguous.
// It must not know how they are sent or timed.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>

namespace crosslane::bench {

/// A committed datatype, freed with its owner, and the bytes from a buffer's start to its end.
class Type {
 public:
  /// Takes the uncommitted handle over.
  explicit Type(MPI_Datatype type);
  ~Type();
  Type(Type&& other) noexcept : type_(other.type_), room_(other.room_) { other.type_ = MPI_DATATYPE_NULL; }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;
  Type& operator=(Type&&) = delete;

  [[nodiscard]] MPI_Datatype get() const noexcept { return type_; }
  [[nodiscard]] std::size_t room() const noexcept { return room_; }

 private:
  MPI_Datatype type_;
  std::size_t room_ = 0;
};

/// What the two ranks send and receive: the same doubles, laid out by each as it likes.
struct Case {
  std::string name;
  long n;             // the matrix's edge
  std::size_t bytes;  // of a message
  Type mine;          // this rank's layout
};

/// The cases' names: C contiguous, V sub-matrix of a matrix twice as high (a vector), T lower triangle (indexed), stair (a
/// triangle by steps of 128), V-C a vector here and contiguous there, transpose contiguous here and by rows there. And, where asked
/// for, run1, run2, ...: a vector of so many doubles a run, every fourth of which is taken.
inline constexpr const char* case_names = "C,V,T,stair,V-C,transpose";

/// Throws std::runtime_error for an unknown name. `rank`: 0 or 1.
[[nodiscard]] Case make_case(const std::string& name, long n, int rank);

}  // namespace crosslane::bench
