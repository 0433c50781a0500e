// How one rank's window lies in its memory, and which ranks may reach which part of it: so that whatever the ranks do at the same time,
// there is one outcome. It must not know Crosslane.
#pragma once

#include "one_sided/number.h"
#include "support/program.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace crosslane::tests {

/// Bytes of a window that one rank alone reaches, or all ranks by operations that commute.
struct Area {
  static constexpr int everybody = -1;
  std::size_t begin = 0, end = 0;  ///< From the window's first byte.
  int owner = everybody;
  const Number* number = nullptr;  ///< Holds numbers of this type alone, that are small; nullptr: any bytes.
};

struct Shape {
  MemoryKind kind = MemoryKind::host;
  std::size_t before = 0, bytes = 0, after = 0;  ///< The memory around the window is nobody's.
  int unit = 1;                                  ///< disp_unit
  bool null_base = false;                        ///< Has no bytes, and MPI is given no address either.
  bool has_counter = false;                      ///< An MPI_LONG at its first byte that no area has.
  std::vector<Area> areas;

  /// Whether multiples of 16 from the window's start are aligned for every basic type.
  [[nodiscard]] bool aligned() const { return before % grain == 0; }
  [[nodiscard]] std::size_t step() const { return aligned() ? grain : 1; }
  [[nodiscard]] std::size_t whole() const { return before + bytes + after; }
  /// New contents for the whole window that depend on `seed` only.
  [[nodiscard]] std::vector<std::byte> contents(std::uint64_t seed) const;
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::size_t grain = 16;
};

[[nodiscard]] Shape random_shape(const Program& program, Random& random, int ranks);

}  // namespace crosslane::tests
