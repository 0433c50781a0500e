// Fills in the predefined handles of this file's ABI family.
#include "mpi/handles.h"

#include <cstdint>
#include <type_traits>

namespace crosslane::mpi {
namespace {

#if !defined(CROSSLANE_ABI_OPENMPI)
/// A handle from its integer value: this family's handles are integers, or pointers that hold small ones.
template <class Handle>
Handle handle_of(std::uint32_t value) noexcept {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(std::uintptr_t{value});
  } else {
    return static_cast<Handle>(value);
  }
}
#endif

#if defined(CROSSLANE_ABI_MPICH)
int* pointer_at(const void* symbol) noexcept { return symbol == nullptr ? nullptr : *static_cast<int* const*>(symbol); }
#endif

}  // namespace

Handles Handles::resolve(void* (*data_symbol)(void* context, const char* name), void* context) {
  Handles handles;
#if defined(CROSSLANE_ABI_OPENMPI)
  const auto keep = [&]<class Handle>(Handle handle) {
    if constexpr (std::is_same_v<Handle, MPI_Datatype>) {
      if (handle == nullptr) return;  // not of this version
      std::size_t slot = slot_of(handle);
      while (handles.datatypes_[slot] != nullptr) slot = (slot + 1) % slots;
      handles.datatypes_[slot] = handle;
    }
  };
#define CROSSLANE_ROW(type, name, openmpi, mpich, standard)         \
  handles.name = static_cast<type>(data_symbol(context, #openmpi)); \
  keep(handles.name);
  CROSSLANE_MPI_PREDEFINED(CROSSLANE_ROW)
#undef CROSSLANE_ROW
  handles.unweighted = reinterpret_cast<int*>(2);
  handles.weights_empty = reinterpret_cast<int*>(3);
#elif defined(CROSSLANE_ABI_MPICH)
#define CROSSLANE_ROW(type, name, openmpi, mpich, standard) handles.name = handle_of<type>(mpich);
  CROSSLANE_MPI_PREDEFINED(CROSSLANE_ROW)
#undef CROSSLANE_ROW
  handles.unweighted = pointer_at(data_symbol(context, "MPI_UNWEIGHTED"));
  handles.weights_empty = pointer_at(data_symbol(context, "MPI_WEIGHTS_EMPTY"));
#else
#define CROSSLANE_ROW(type, name, openmpi, mpich, standard) handles.name = handle_of<type>(standard);
  CROSSLANE_MPI_PREDEFINED(CROSSLANE_ROW)
#undef CROSSLANE_ROW
  static_cast<void>(data_symbol);
  static_cast<void>(context);
  handles.unweighted = reinterpret_cast<int*>(10);
  handles.weights_empty = reinterpret_cast<int*>(11);
#endif
  return handles;
}

}  // namespace crosslane::mpi
