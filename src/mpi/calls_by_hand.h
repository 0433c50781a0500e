// The canonical callers whose two forms differ by more than integer types; the others are generated (calls.h, which
// includes this file). Parameters are those of the large-count forms.
#pragma once

#include "mpi/functions.h"

namespace crosslane::mpi::calls {

/// Elements of `datatype` in the status; mpi::undefined if not a whole number. Exact beyond int on every MPI.
int Get_count(const Functions& mpi, const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count);

/// A datatype of any count.
int Type_contiguous(const Functions& mpi, MPI_Count count, MPI_Datatype oldtype, MPI_Datatype* newtype);

/// How a datatype was made. Without the large-count form there are no large counts.
int Type_get_envelope(const Functions& mpi, MPI_Datatype datatype, MPI_Count* num_integers, MPI_Count* num_addresses,
                      MPI_Count* num_large_counts, MPI_Count* num_datatypes, int* combiner);

/// With what it was made; the sizes must be those of Type_get_envelope above. Derived handles in the result are the
/// caller's to free.
int Type_get_contents(const Functions& mpi, MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                      MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                      MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                      MPI_Datatype array_of_datatypes[]);

}  // namespace crosslane::mpi::calls
