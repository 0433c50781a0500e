// The facts as the MPI's own header has them.
#include "abi_rows.h"

#pragma GCC diagnostic ignored "-Wold-style-cast"  // the header's macros
#include <mpi.h>

#include <cstddef>

Facts real_facts() {
  Facts facts;
#define CONSTANT(ours, real) facts[#real] = bits_of(static_cast<int>(real));
#define HANDLE(ours, real) facts[#real] = bits_of(real);
#define MISSING(ours, real)
#include "abi_rows.inc"
#undef CONSTANT
#undef HANDLE
#undef MISSING
#ifdef MPI_INTEGER16
  if (MPI_INTEGER16 == MPI_DATATYPE_NULL) facts.erase("MPI_INTEGER16");  // a compiler without it
#endif
  facts["MPI_IN_PLACE"] = bits_of(MPI_IN_PLACE);
  facts["MPI_BOTTOM"] = bits_of(static_cast<void*>(MPI_BOTTOM));
  facts["MPI_STATUS_IGNORE"] = bits_of(MPI_STATUS_IGNORE);
  facts["MPI_STATUSES_IGNORE"] = bits_of(MPI_STATUSES_IGNORE);
  facts["MPI_ERRCODES_IGNORE"] = bits_of(static_cast<int*>(MPI_ERRCODES_IGNORE));
  facts["MPI_UNWEIGHTED"] = bits_of(static_cast<int*>(MPI_UNWEIGHTED));
  facts["MPI_WEIGHTS_EMPTY"] = bits_of(static_cast<int*>(MPI_WEIGHTS_EMPTY));
#define SIZE(type) facts["sizeof(" #type ")"] = sizeof(type), facts["alignof(" #type ")"] = alignof(type);
#include "abi_sizes.inc"
#if MPI_VERSION >= 4
  SIZE(MPI_Session)
  SIZE(MPI_F08_status)
#endif
#undef SIZE
  facts["offset of MPI_SOURCE"] = offsetof(MPI_Status, MPI_SOURCE);
  facts["offset of MPI_TAG"] = offsetof(MPI_Status, MPI_TAG);
  facts["offset of MPI_ERROR"] = offsetof(MPI_Status, MPI_ERROR);
  return facts;
}
