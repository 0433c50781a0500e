// Regions of addresses, by the granularity at which drivers take them. It must not know what lies there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crosslane::gpu {

inline constexpr std::size_t region_bytes = std::size_t{1} << 21;

/// The region that holds this byte: one with GPU memory has no other's.
inline std::uintptr_t region_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) / region_bytes;
}

}  // namespace crosslane::gpu
