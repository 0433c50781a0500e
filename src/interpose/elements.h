// MPI's predefined datatypes and operations as the kernels know them. It must not know any call.
#pragma once

#include "kernel/catalogue.h"
#include "mpi/handles.h"

#include <optional>

namespace crosslane::interpose {

/// Nothing for derived types, and for those that a GPU cannot hold (long double) or add (MPI_PACKED).
[[nodiscard]] std::optional<kernel::Element> element_of(const mpi::Handles& handles, MPI_Datatype type) noexcept;

/// Nothing for the application's own operations, MPI_REPLACE and MPI_NO_OP.
[[nodiscard]] std::optional<kernel::Op> op_of(const mpi::Handles& handles, MPI_Op op) noexcept;

struct Combining {
  kernel::Element element;
  kernel::Op op;
  bool by_flags = false;  ///< Fortran's compilers have flags by which such elements have another size.
};
/// Nothing also where MPI does not define the operation for the type, even if it is one for the kernels, to which bytes, truth values
/// and Fortran's integers are integers like others.
[[nodiscard]] std::optional<Combining> combining_of(const mpi::Handles& handles, MPI_Datatype type, MPI_Op op) noexcept;

}  // namespace crosslane::interpose
