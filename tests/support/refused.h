// What a refused call must return, and GPU memory that ends exactly where the program asked. It must not know Crosslane.
#pragma once

#include "support/memory.h"

#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace crosslane::tests {

/// Of such an allocation no neighbour shares the pages.
inline constexpr std::size_t megabytes = std::size_t{4} << 20;

/// Unlike Memory without guards, and freed when the test says so.
class Allocation {
 public:
  explicit Allocation(std::size_t bytes);
  ~Allocation() { free(); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  void free();  ///< data() stays what it was.
  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  CUdeviceptr address_ = 0;
  bool live_ = true;
};

/// The error is of that class, and its message has each word by itself: "base" does not stand in "database".
void expect(int result, int error_class, std::initializer_list<std::string_view> words);

/// The same of memory that cannot be had.
void expect_refused(int result, std::initializer_list<std::string_view> words);

}  // namespace crosslane::tests
