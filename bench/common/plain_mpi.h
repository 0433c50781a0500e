// MPI's functions twice: as the program's own calls reach them (through whatever is preloaded), and straight in the MPI
// library. So both sides of a comparison are in one process and one run. It must not know what is preloaded.
#pragma once

#include <mpi.h>

#include <string>

namespace crosslane::bench {

/// The calls that benchmarks make, as pointers.
struct Calls {
  decltype(&MPI_Comm_rank) comm_rank = nullptr;
  decltype(&MPI_Send) send = nullptr;
  decltype(&MPI_Recv) recv = nullptr;
  decltype(&MPI_Sendrecv) sendrecv = nullptr;
  decltype(&MPI_Isend) isend = nullptr;
  decltype(&MPI_Irecv) irecv = nullptr;
  decltype(&MPI_Waitall) waitall = nullptr;
  decltype(&MPI_Wait) wait = nullptr;
  decltype(&MPI_Allreduce) allreduce = nullptr;
  decltype(&MPI_Bcast) bcast = nullptr;
  decltype(&MPI_Alltoallw) alltoallw = nullptr;

  /// As the program's own calls are bound: by the dynamic linker, preloaded libraries first.
  static Calls bound();
  /// The MPI library's own. Throws std::runtime_error where none is found.
  static Calls plain();
};

/// The file of the library that the program's MPI_Send is bound to.
[[nodiscard]] std::string bound_to();

/// True if the program's calls reach a library of Crosslane first.
[[nodiscard]] bool preloaded();

}  // namespace crosslane::bench
