// Reads an MPI datatype's description (MPI 5.0, section 5.1.13) into a Layout. Calls the MPI below; keeps nothing.
#pragma once

#include "layout/layout.h"
#include "mpi/abi.h"
#include "mpi/functions.h"
#include "mpi/handles.h"

namespace crosslane::layout {

/// The layout of `type`, committed or not, and whether the MPI owns it: predefined types must not be freed and never
/// go.
struct Decoded {
  Layout layout;
  bool predefined;
};

/// Throws Error (type) for MPI_DATATYPE_NULL, for a handle that the MPI refuses, and for displacements past 64 bits;
/// Error (unsupported) for a predefined type with holes that this file does not know.
[[nodiscard]] Decoded decode(const mpi::Functions& below, const mpi::Handles& handles, MPI_Datatype type);

}  // namespace crosslane::layout
