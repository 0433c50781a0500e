// The kernels as a loadable image, for GPUs and for the emulated driver, and their names.
// It must not know how to launch them (launch.h), nor what a datatype or a collective is.
#pragma once

#include "gpu/emulated/image.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace crosslane::kernel {

/// Elements that reductions know: signed, unsigned, floating-point, complex, with their bits.
enum class Element : std::uint8_t { i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, c64, c128 };
inline constexpr std::size_t element_count = 12;
[[nodiscard]] std::size_t bytes_of(Element element) noexcept;

enum class Op : std::uint8_t { sum, prod, min, max, land, lor, lxor, band, bor, bxor };
inline constexpr std::size_t op_count = 10;

/// The reduction's kernel; null where MPI does not define the operation for such elements.
[[nodiscard]] const char* reduce_kernel(Op op, Element element) noexcept;

/// SASS for compute capabilities 8.0 and 9.0 and PTX for later ones, as cuModuleLoadData takes it. Empty if the library
/// was built without a GPU compiler (CROSSLANE_CUDA_KERNELS=OFF): real GPUs then have no kernels.
[[nodiscard]] std::span<const std::byte> fat_binary() noexcept;

/// The same functors for the emulated driver, by the same names.
[[nodiscard]] const gpu::EmulatedImage& emulated_image() noexcept;

}  // namespace crosslane::kernel
