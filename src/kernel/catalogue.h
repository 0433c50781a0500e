// The kernels as loadable images, for GPUs and for the emulated driver, and their names.
// It must not know how to launch them (launch.h), nor what a datatype or a collective is.
#pragma once

#include "gpu/emulated/image.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::kernel {

/// Elements that reductions know: signed, unsigned, floating-point (bf16: the 8-bit exponent), complex, with their bits;
/// and for minloc and maxloc structs of a value and an index, laid out as C lays them out (Fortran's pairs: f32_f32,
/// f64_f64, i32_i32). Logical operations take any integer that is not 0 for true and give 1: MPI_C_BOOL is u8,
/// MPI_LOGICAL i32.
enum class Element : std::uint8_t {
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  i16_i32,
  i32_i32,
  i64_i32,
  f32_i32,
  f64_i32,
  f32_f32,
  f64_f64
};
inline constexpr std::size_t element_count = 21;
/// With padding, as arrays of them lie in memory. Divides 16.
[[nodiscard]] std::size_t bytes_of(Element element) noexcept;

enum class Op : std::uint8_t { sum, prod, min, max, land, lor, lxor, band, bor, bxor, minloc, maxloc };
inline constexpr std::size_t op_count = 12;

/// An operation and an element that have kernels, and `name`, "sum_f32", with which their names end.
struct Combination {
  Op op;
  Element element;
  const char* name;
};
[[nodiscard]] std::span<const Combination> combinations() noexcept;

/// Which of combinations() does it, with how many of its elements for each one; nothing where MPI does not define the
/// operation for such elements. (Some operations do not care about the sign, or where an element ends.)
struct Combined {
  std::size_t row, factor;
};
[[nodiscard]] std::optional<Combined> combination(Op op, Element element) noexcept;

/// True if this row of combinations() has a pipelined kernel: the operations and elements of which large arrays are.
[[nodiscard]] bool pipelined(const Combination& row) noexcept;

/// Kernels that are compiled and loaded together, called crosslane_<family>_<...>.
enum class Family : std::uint8_t { local, exchange, low_latency, lingering, lines, pipelined, ring, pairwise, copy };

/// SASS for compute capabilities 8.0 and 9.0 and PTX for later ones, as cuModuleLoadData takes it. Empty if the library
/// was built without a GPU compiler (CROSSLANE_CUDA_KERNELS=OFF): real GPUs then have no kernels.
[[nodiscard]] std::span<const std::byte> fat_binary(Family family) noexcept;

/// The same functors for the emulated driver, by the same names.
[[nodiscard]] const gpu::EmulatedImage& emulated_local() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_exchange() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_low_latency() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_lingering() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_lines() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_pipelined() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_ring() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_pairwise() noexcept;
[[nodiscard]] const gpu::EmulatedImage& emulated_copy() noexcept;

}  // namespace crosslane::kernel
