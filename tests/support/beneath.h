// The MPI's own functions, past whatever is preloaded or linked before it. It must not know Crosslane.
#pragma once

namespace crosslane::tests {

/// By the name that no tool wraps, e.g. "PMPI_Iprobe". Null if the MPI's library is not loaded, or has none of that name.
[[nodiscard]] void* beneath(const char* name);

/// The same as a function: beneath(&MPI_Iprobe, "PMPI_Iprobe")(...). Ends the program where there is none.
template <class Function>
[[nodiscard]] Function* beneath(Function* /*of this type*/, const char* name);

/// Prints what is missing, and ends the program.
[[noreturn]] void nothing_beneath(const char* name);

template <class Function>
Function* beneath(Function*, const char* name) {
  void* const address = beneath(name);
  if (address == nullptr) nothing_beneath(name);
  return reinterpret_cast<Function*>(address);
}

}  // namespace crosslane::tests
