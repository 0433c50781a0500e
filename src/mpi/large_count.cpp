// Datatypes for large counts.
#include "mpi/large_count.h"

#include <vector>

namespace crosslane::mpi {

int make_contiguous(const Functions& mpi, MPI_Count count, MPI_Datatype element, MPI_Datatype* made) {
  if (fits(count)) return mpi.Type_contiguous(static_cast<int>(count), element, made);
  MPI_Aint lower = 0, extent = 0;
  if (const int result = mpi.Type_get_extent(element, &lower, &extent); result != success) return result;
  // One type constructor over the element itself: a struct of parts would let MPI pad the extent for alignment.
  const MPI_Count blocks = (count + large_block - 1) / large_block;
  std::vector<int> lengths(static_cast<std::size_t>(blocks), static_cast<int>(large_block));
  std::vector<MPI_Aint> displacements(static_cast<std::size_t>(blocks));
  lengths.back() = static_cast<int>(count - (blocks - 1) * large_block);
  for (std::size_t block = 0; block < displacements.size(); ++block) {
    displacements[block] = static_cast<MPI_Aint>(block) * static_cast<MPI_Aint>(large_block) * extent;
  }
  return mpi.Type_create_hindexed(static_cast<int>(blocks), lengths.data(), displacements.data(), element, made);
}

LargeCount::LargeCount(const Functions& mpi, MPI_Count count, MPI_Datatype type) : mpi_(mpi), type_(type) {
  if (fits(count)) {
    count_ = static_cast<int>(count);
    return;
  }
  if (count < 0) throw base::Error(base::ErrorClass::count, "the count {} is negative", count);
  error_ = make_contiguous(mpi, count, type, &type_);
  if (error_ != success) return;
  made_ = true;
  error_ = mpi.Type_commit(&type_);
}

LargeCount::~LargeCount() {
  if (made_) mpi_.Type_free(&type_);  // MPI keeps it for the operations that use it
}

void refuse(bool exists, const char* procedure) {
  if (!exists) {
    throw base::Error(base::ErrorClass::unsupported, "{}: the MPI library that this program runs on does not have it",
                      procedure);
  }
  throw base::Error(
      base::ErrorClass::count,
      "{0}: a count, displacement or size exceeds the 2,147,483,647 of an int, and the MPI library has no "
      "{0}_c. Divide the operation, or run on an MPI 4 library with large counts (MPICH 4.0 or later)",
      procedure);
}

}  // namespace crosslane::mpi
