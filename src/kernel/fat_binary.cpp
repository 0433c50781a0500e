// The GPU code that nvcc made of the .cu files, as bytes of this library. See catalogue.h.
#include "kernel/catalogue.h"
#include "kernel/embed.h"

CROSSLANE_EMBED(local)
CROSSLANE_EMBED(exchange)
CROSSLANE_EMBED(low_latency)
CROSSLANE_EMBED(lingering)
CROSSLANE_EMBED(lines)
CROSSLANE_EMBED(pipelined)
CROSSLANE_EMBED(ring)
CROSSLANE_EMBED(pairwise)
CROSSLANE_EMBED(copy)

namespace crosslane::kernel {

std::span<const std::byte> fat_binary(Family family) noexcept {
  switch (family) {
    case Family::local:
      return {&crosslane_fat_binary_local, &crosslane_fat_binary_local_end};
    case Family::exchange:
      return {&crosslane_fat_binary_exchange, &crosslane_fat_binary_exchange_end};
    case Family::low_latency:
      return {&crosslane_fat_binary_low_latency, &crosslane_fat_binary_low_latency_end};
    case Family::lingering:
      return {&crosslane_fat_binary_lingering, &crosslane_fat_binary_lingering_end};
    case Family::lines:
      return {&crosslane_fat_binary_lines, &crosslane_fat_binary_lines_end};
    case Family::pipelined:
      return {&crosslane_fat_binary_pipelined, &crosslane_fat_binary_pipelined_end};
    case Family::ring:
      return {&crosslane_fat_binary_ring, &crosslane_fat_binary_ring_end};
    case Family::pairwise:
      return {&crosslane_fat_binary_pairwise, &crosslane_fat_binary_pairwise_end};
    case Family::copy:
      return {&crosslane_fat_binary_copy, &crosslane_fat_binary_copy_end};
  }
  return {};
}

}  // namespace crosslane::kernel
