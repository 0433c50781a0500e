// What a window says of itself (MPI 5.0, section 12.2.6). It must not know Crosslane.
#pragma once

#include "support/check.h"

#include <mpi.h>

namespace crosslane::tests {

/// An attribute that every window has, and whose value MPI gives the address of.
template <class Value>
Value attribute(MPI_Win window, int key, const char* name) {
  void* value = nullptr;
  int found = 0;
  CROSSLANE_MPI(MPI_Win_get_attr(window, key, static_cast<void*>(&value), &found));
  CROSSLANE_CHECK(found != 0, "{} is not set", name);
  return found == 0 ? Value{} : *static_cast<Value*>(value);
}

[[nodiscard]] inline bool is_unified(MPI_Win window) {
  return attribute<int>(window, MPI_WIN_MODEL, "MPI_WIN_MODEL") == MPI_WIN_UNIFIED;
}

}  // namespace crosslane::tests
