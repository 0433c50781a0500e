// The MPI that we call, without its header: types in the global namespace, constants in crosslane::mpi, for the one ABI
// family that this translation unit is compiled for. What follows from the constants alone is here for all families.
// It must not know any function of an MPI, nor where its predefined handles are (functions.h, handles.h).
#pragma once

#include "base/error.h"

#if defined(CROSSLANE_ABI_OPENMPI)
#include "mpi/abi_openmpi.h"
#elif defined(CROSSLANE_ABI_MPICH)
#include "mpi/abi_mpich.h"
#elif defined(CROSSLANE_ABI_STANDARD)
#include "mpi/abi_standard.h"
#else
#error "Compile this file once for each ABI family: see cmake/CrosslaneFamily.cmake"
#endif

namespace crosslane::mpi {

/// Which constructor made a datatype (MPI 5.0, section 5.1.13), in numbers of our own.
enum class Combiner {
  named,
  dup,
  contiguous,
  vector,
  hvector,
  indexed,
  hindexed,
  indexed_block,
  hindexed_block,
  structure,
  subarray,
  darray,
  f90_real,
  f90_complex,
  f90_integer,
  resized,
  value_index,
};

/// The combiner that MPI_Type_get_envelope gave as `value`; Error (intern) for one that no MPI up to 5.0 has.
[[nodiscard]] Combiner combiner(int value);

/// The MPI error class that an Error of ours stands for.
[[nodiscard]] int error_class(base::ErrorClass error_class) noexcept;

}  // namespace crosslane::mpi
