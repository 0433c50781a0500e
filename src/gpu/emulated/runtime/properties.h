// What cudaGetDeviceProperties fills, as programs of CUDA 12 have it (cudaGetDeviceProperties_v2 in their binaries) and those of CUDA 13.
#pragma once

#include "gpu/emulated/runtime/runtime.h"

#include <cstddef>

namespace crosslane::gpu::emulated::runtime {

/// The layout of cudaDeviceProp in a release of CUDA.
enum class Release { cuda_12, cuda_13 };

/// Fills a cudaDeviceProp of that release: name, memory and what the driver has as attributes; all else is 0. Null: CUDA_ERROR_INVALID_VALUE;
/// unknown device: CUDA_ERROR_INVALID_DEVICE.
[[nodiscard]] Error fill(void* properties, Release release, int device) noexcept;

}  // namespace crosslane::gpu::emulated::runtime
