// Random datatypes made by every constructor that the MPI has, plain and with large counts.
// It must not know Crosslane's layouts: it only calls MPI.
#pragma once

#include "mpi/functions.h"
#include "mpi/handles.h"

#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace crosslane::tests {

class RandomType {
 public:
  RandomType(const mpi::Functions& mpi, const mpi::Handles& handles, std::uint64_t seed)
      : mpi_(mpi), handles_(handles), engine_(seed) {}

  /// A committed type of at most `depth` constructors around predefined ones; for the caller to free unless it is
  /// predefined. Of bounded size and reach, so that buffers can be made for it.
  struct Made {
    MPI_Datatype type{};
    bool predefined = false;
    std::string text;     ///< how it was made
    bool hollow = false;  ///< a type without bytes is part of it (or all of it)
    bool loose = false;   ///< the MPI's true bounds may be wider than the bytes touched
  };
  Made make(int depth);

  /// A number of [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  [[nodiscard]] const std::map<std::string, int>& constructors_used() const { return used_; }
  /// Because this MPI gets them wrong.
  [[nodiscard]] std::size_t constructors_left_out() const { return complex_is_misplaced_ ? 1 : 0; }

 private:
  Made predefined();
  Made derived(int depth);
  Made constructed(int depth);
  bool within_bounds(MPI_Datatype type) const;
  void free(Made& made);
  /// Of 16 bytes each, so many bytes from one to the next.
  [[nodiscard]] bool packs_wrong(MPI_Datatype basic, int stride) const;

  const mpi::Functions& mpi_;
  const mpi::Handles& handles_;
  std::mt19937_64 engine_;
  // What this MPI gets wrong, tried out. MPICH and Open MPI 5 copy a long double as the 10 bytes of its value and leave the
  // padding as it was; Open MPI 5.0 rounds distances between complex numbers down to multiples of their size.
  const bool padding_is_lost_ = packs_wrong(handles_.long_double, 32);
  const bool complex_is_misplaced_ = packs_wrong(handles_.c_double_complex, 40);
  std::map<std::string, int> used_;
};

}  // namespace crosslane::tests
