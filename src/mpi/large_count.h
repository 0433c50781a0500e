// Large counts on an MPI without large-count procedures: a derived datatype that stands for many elements (as BigMPI
// does; Hammond, Schäfer, Latham: "To INT_MAX... and beyond!", ExaMPI 2014), and reductions in parts.
// It must not know any single procedure: the generated calls.cpp uses it.
#pragma once

#include "mpi/functions.h"
#include "mpi/narrowed.h"

#include <algorithm>
#include <utility>

namespace crosslane::mpi {

/// Elements in one block of such a datatype, and in one part of a reduction.
inline constexpr MPI_Count large_block = MPI_Count{1} << 30;

/// Makes the datatype of `count` consecutive elements, not committed. Gives MPI's error code.
int make_contiguous(const Functions& mpi, MPI_Count count, MPI_Datatype element, MPI_Datatype* made);

/// A count and datatype for a plain procedure: the given ones if the count fits int, else 1 of a datatype made here and
/// freed at the end of the scope, which MPI permits as soon as the operation is started.
class LargeCount {
 public:
  LargeCount(const Functions& mpi, MPI_Count count, MPI_Datatype type);
  ~LargeCount();
  LargeCount(const LargeCount&) = delete;
  LargeCount& operator=(const LargeCount&) = delete;

  [[nodiscard]] bool failed() const noexcept { return error_ != success; }
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }

 private:
  const Functions& mpi_;
  MPI_Datatype type_;
  int count_ = 1;
  int error_ = success;
  bool made_ = false;
};

/// The address `offset` bytes behind a buffer; MPI_IN_PLACE stays. MPI_BOTTOM moves too: its types hold addresses.
template <class Address>
[[nodiscard]] Address advance(Address buffer, MPI_Aint offset) noexcept {
  if (buffer == in_place()) return buffer;
  return reinterpret_cast<Address>(reinterpret_cast<MPI_Aint>(buffer) + offset);
}

/// Calls `part(offset in bytes, elements)` for consecutive parts of `count` elements until one fails.
template <class Part>
int in_chunks(const Functions& mpi, MPI_Count count, MPI_Datatype type, const Part& part) {
  MPI_Aint lower = 0, extent = 0;
  if (const int result = mpi.Type_get_extent(type, &lower, &extent); result != success) return result;
  for (MPI_Count done = 0; done < count; done += large_block) {
    const int elements = static_cast<int>(std::min(large_block, count - done));
    if (const int result = part(static_cast<MPI_Aint>(done) * extent, elements); result != success) return result;
  }
  return success;
}

/// Throws Error: unsupported if the MPI has no such procedure at all, else count, with the remedy.
[[noreturn]] void refuse(bool exists, const char* procedure);

}  // namespace crosslane::mpi
