// What tests of refused calls share: memory whose end is known, what an error has to say, and communication that shows that MPI is usable.
#pragma once

#include "support/program.h"

#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace crosslane::tests {

inline constexpr std::size_t megabytes = std::size_t{4}
                                         << 20;  // an allocation of its own: no neighbour shares its pages

/// GPU memory whose end is exactly where the program asked for it, unlike Memory's.
class Allocation {
 public:
  explicit Allocation(std::size_t bytes) { CROSSLANE_CUDA(cuMemAlloc(&address_, bytes)); }
  ~Allocation() { free(); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  /// data() stays what it was.
  void free() {
    if (live_) CROSSLANE_CUDA(cuMemFree(address_));
    live_ = false;
  }
  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  CUdeviceptr address_ = 0;
  bool live_ = true;
};

/// The error is of that class, and its text has these words.
void expect(int result, int error_class, std::initializer_list<std::string_view> words);

/// GPU memory goes round MPI_COMM_WORLD, and arrives.
void still_usable(const Program& program);
/// The same until ranks know what they can read of each other.
void meet(const Program& program);

}  // namespace crosslane::tests
