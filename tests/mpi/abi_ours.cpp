// The same facts as src/mpi has them, with the predefined handles found at run time.
#include "abi_rows.h"

#include "mpi/library.h"

#include <cstddef>

using namespace crosslane;

Facts our_facts() {
  const mpi::Library library;
  const mpi::Handles& handles = library.handles();
  Facts facts;
#define CONSTANT(ours, real) facts[#real] = bits_of(static_cast<int>(mpi::ours));
#define HANDLE(ours, real) facts[#real] = bits_of(handles.ours);
#define MISSING(ours, real) HANDLE(ours, real)
#include "abi_rows.inc"
#undef CONSTANT
#undef HANDLE
#undef MISSING
  facts["MPI_IN_PLACE"] = bits_of(mpi::in_place());
  facts["MPI_BOTTOM"] = bits_of(mpi::bottom());
  facts["MPI_STATUS_IGNORE"] = bits_of(mpi::status_ignore());
  facts["MPI_STATUSES_IGNORE"] = bits_of(mpi::statuses_ignore());
  facts["MPI_ERRCODES_IGNORE"] = bits_of(mpi::errcodes_ignore());
  facts["MPI_UNWEIGHTED"] = bits_of(handles.unweighted);
  facts["MPI_WEIGHTS_EMPTY"] = bits_of(handles.weights_empty);
#define SIZE(type) facts["sizeof(" #type ")"] = sizeof(type), facts["alignof(" #type ")"] = alignof(type);
#include "abi_sizes.inc"
  SIZE(MPI_Session)
  SIZE(MPI_F08_status)
#undef SIZE
  facts["offset of MPI_SOURCE"] = offsetof(MPI_Status, MPI_SOURCE);
  facts["offset of MPI_TAG"] = offsetof(MPI_Status, MPI_TAG);
  facts["offset of MPI_ERROR"] = offsetof(MPI_Status, MPI_ERROR);
  return facts;
}
