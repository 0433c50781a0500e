// Copies of MPI_Count and MPI_Aint arrays with smaller elements, for MPI procedures without a large-count form.
// It must not know which call they belong to: the canonical callers (calls.h) decide what fits.
#pragma once

#include "mpi/abi.h"

#include <climits>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace crosslane::mpi {

/// True if the value, or each of the `length` values, can be given to MPI as an int.
template <class Integer>
[[nodiscard]] constexpr bool fits(Integer value) noexcept
  requires std::is_integral_v<Integer>
{
  return value >= INT_MIN && value <= INT_MAX;
}

template <class Integer>
[[nodiscard]] constexpr bool fits(const Integer* values, MPI_Count length) noexcept {
  if (values == nullptr) return true;  // not significant, or an error that MPI will find
  for (MPI_Count index = 0; index < length; ++index) {
    if (!fits(values[index])) return false;
  }
  return true;
}

/// Owns the copies. For a nonblocking or persistent operation it must live until MPI no longer reads its arrays.
class Narrowed {
 public:
  /// `values` with elements of type Element: a copy, or `values` itself if that is their type already. The elements
  /// must fit. Null stays null; an empty array gives an address that is valid and never read.
  template <class Element, class Value>
  [[nodiscard]] const Element* array(const Value* values, MPI_Count length) {
    if constexpr (std::is_same_v<Element, Value>) {
      return values;
    } else {
      if (values == nullptr) return nullptr;
      const std::size_t count = length > 0 ? static_cast<std::size_t>(length) : 0;
      auto copy = std::make_unique<std::byte[]>((count + 1) * sizeof(Element));  // operator new aligns for any integer
      auto* elements = reinterpret_cast<Element*>(copy.get());
      for (std::size_t index = 0; index < count; ++index) elements[index] = static_cast<Element>(values[index]);
      copies_.push_back(std::move(copy));
      return elements;
    }
  }

  /// Drops all copies.
  void clear() noexcept { copies_.clear(); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace crosslane::mpi
