// An MPI's predefined handles, reachable as library.handles().comm_world on every family.
// In Open MPI they are addresses of data in libmpi, found once at run time and never referenced by our linker;
// elsewhere they are constants. A handle that the loaded version lacks is a null pointer (Open MPI) or a value that it
// never yields.
#pragma once

#include "mpi/abi.h"
#include "mpi/predefined.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace crosslane::mpi {

struct Handles {
#define CROSSLANE_MEMBER(type, name, openmpi, mpich, standard) type name{};
  CROSSLANE_MPI_PREDEFINED(CROSSLANE_MEMBER)
#undef CROSSLANE_MEMBER

  // Sentinels of the topology procedures: data symbols in MPICH, constants elsewhere.
  int* unweighted = nullptr;
  int* weights_empty = nullptr;

  /// False for derived datatypes; true for the predefined ones, but for MPICH's pairs of value and index. No call of the MPI.
  [[nodiscard]] bool surely_predefined(MPI_Datatype type) const noexcept {
#if defined(CROSSLANE_ABI_OPENMPI)
    std::size_t slot = slot_of(type);
    while (datatypes_[slot] != type && datatypes_[slot] != nullptr) slot = (slot + 1) % slots;
    return datatypes_[slot] != nullptr;
#elif defined(CROSSLANE_ABI_MPICH)
    constexpr unsigned kind_shift = 30, builtin = 1;
    return static_cast<std::uint32_t>(type) >> kind_shift == builtin;
#else
    constexpr std::uintptr_t predefined_end = 0x1000;  // MPI 5.0, section 20.3: the others are beyond
    return reinterpret_cast<std::uintptr_t>(type) < predefined_end;
#endif
  }

  /// All of them. `data_symbol` gives the address of a data symbol of the MPI, or null.
  static Handles resolve(void* (*data_symbol)(void* context, const char* name), void* context);

#if defined(CROSSLANE_ABI_OPENMPI)
 private:
  // A hash table, mostly empty. They lie half a kilobyte apart, in the library or, where the program names them, in that (a copy
  // relocation).
  static constexpr std::size_t slots = 512;
  [[nodiscard]] static std::size_t slot_of(MPI_Datatype type) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(type);
    return (address >> 9 ^ address >> 17) % slots;
  }
  std::array<MPI_Datatype, slots> datatypes_{};
#endif
};

}  // namespace crosslane::mpi
