// The GPU code that nvcc made of the .cu files, as bytes of a benchmark. See images.h.
#include "kernel/embed.h"
#include "kernels/images.h"

CROSSLANE_EMBED(busy)
CROSSLANE_EMBED(halo)
CROSSLANE_EMBED(work)

namespace crosslane::bench {

std::span<const std::byte> busy_image() noexcept {
  return {&crosslane_fat_binary_busy, &crosslane_fat_binary_busy_end};
}
std::span<const std::byte> halo_image() noexcept {
  return {&crosslane_fat_binary_halo, &crosslane_fat_binary_halo_end};
}
std::span<const std::byte> work_image() noexcept {
  return {&crosslane_fat_binary_work, &crosslane_fat_binary_work_end};
}

}  // namespace crosslane::bench
