// An MPI's predefined handles, reachable as library.handles().comm_world on every family.
// In Open MPI they are addresses of data in libmpi, found once at run time and never referenced by our linker;
// elsewhere they are constants. A handle that the loaded version lacks is a null pointer (Open MPI) or a value that it
// never yields.
#pragma once

#include "mpi/abi.h"
#include "mpi/predefined.h"

namespace crosslane::mpi {

struct Handles {
#define CROSSLANE_MEMBER(type, name, openmpi, mpich, standard) type name{};
  CROSSLANE_MPI_PREDEFINED(CROSSLANE_MEMBER)
#undef CROSSLANE_MEMBER

  // Sentinels of the topology procedures: data symbols in MPICH, constants elsewhere.
  int* unweighted = nullptr;
  int* weights_empty = nullptr;

  /// All of them. `data_symbol` gives the address of a data symbol of the MPI, or null.
  static Handles resolve(void* (*data_symbol)(void* context, const char* name), void* context);
};

}  // namespace crosslane::mpi
