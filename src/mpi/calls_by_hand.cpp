// See calls_by_hand.h.
#include "mpi/calls_by_hand.h"

#include "mpi/calls.h"
#include "mpi/large_count.h"

namespace crosslane::mpi::calls {

int Get_count(const Functions& mpi, const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  if (mpi.Get_count_c != nullptr) return mpi.Get_count_c(status, datatype, count);
  if (mpi.Get_count == nullptr) refuse(false, "MPI_Get_count");
  int plain = 0;
  if (const int result = mpi.Get_count(status, datatype, &plain); result != success) return result;
  *count = plain;
  if (plain != undefined) return success;
  // Not a whole number of elements, or more than an int holds: the bytes tell.
  MPI_Count bytes = 0, size = 0;
  if (const int result = Get_elements(mpi, status, mpi.handles->byte, &bytes); result != success) return result;
  if (const int result = Type_size(mpi, datatype, &size); result != success) return result;
  if (bytes >= 0 && size > 0 && bytes % size == 0) *count = bytes / size;
  return success;
}

int Type_contiguous(const Functions& mpi, MPI_Count count, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  if (fits(count) || mpi.Type_contiguous_c == nullptr) return make_contiguous(mpi, count, oldtype, newtype);
  return mpi.Type_contiguous_c(count, oldtype, newtype);
}

int Type_get_envelope(const Functions& mpi, MPI_Datatype datatype, MPI_Count* num_integers, MPI_Count* num_addresses,
                      MPI_Count* num_large_counts, MPI_Count* num_datatypes, int* combiner) {
  if (mpi.Type_get_envelope_c != nullptr) {
    return mpi.Type_get_envelope_c(datatype, num_integers, num_addresses, num_large_counts, num_datatypes, combiner);
  }
  if (mpi.Type_get_envelope == nullptr) refuse(false, "MPI_Type_get_envelope");
  int integers = 0, addresses = 0, datatypes = 0;
  const int result = mpi.Type_get_envelope(datatype, &integers, &addresses, &datatypes, combiner);
  if (result != success) return result;
  *num_integers = integers;
  *num_addresses = addresses;
  *num_large_counts = 0;
  *num_datatypes = datatypes;
  return success;
}

int Type_get_contents(const Functions& mpi, MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                      MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                      MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                      MPI_Datatype array_of_datatypes[]) {
  if (mpi.Type_get_contents_c != nullptr) {
    return mpi.Type_get_contents_c(datatype, max_integers, max_addresses, max_large_counts, max_datatypes,
                                   array_of_integers, array_of_addresses, array_of_large_counts, array_of_datatypes);
  }
  const bool possible = fits(max_integers) && fits(max_addresses) && fits(max_datatypes);
  if (mpi.Type_get_contents == nullptr || !possible) refuse(mpi.Type_get_contents != nullptr, "MPI_Type_get_contents");
  return mpi.Type_get_contents(datatype, static_cast<int>(max_integers), static_cast<int>(max_addresses),
                               static_cast<int>(max_datatypes), array_of_integers, array_of_addresses,
                               array_of_datatypes);
}

}  // namespace crosslane::mpi::calls
