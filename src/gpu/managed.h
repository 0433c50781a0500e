// Managed memory that the CPU may touch whatever the GPU does: on all GPUs since Pascal under Linux. Elsewhere a CPU that touches it
// while a kernel runs faults.
#pragma once

#include "gpu/driver.h"

namespace crosslane::gpu {

/// True if `address` is such memory. Creates no context.
[[nodiscard]] bool shared_with_cpu(Gpu& gpu, const void* address) noexcept;

}  // namespace crosslane::gpu
