// The GPU code that nvcc made of the .cu files, as bytes of this library. See catalogue.h.
#include "kernel/catalogue.h"

// clang-format off: assembler, a line a line
#define CROSSLANE_EMBED(family)                                                                      \
  asm(".section .rodata\n"                                                                           \
      ".balign 16\n"                                                                                 \
      ".type crosslane_fat_binary_" #family ", @object\n"                                            \
      "crosslane_fat_binary_" #family ":\n"                                                          \
      ".incbin \"" CROSSLANE_FAT_BINARIES "/" #family ".fatbin\"\n"                                  \
      "crosslane_fat_binary_" #family "_end:\n"                                                      \
      ".byte 0\n"                                                                                    \
      ".previous\n");                                                                                \
  extern "C" {                                                                                       \
  extern const std::byte crosslane_fat_binary_##family __attribute__((visibility("hidden")));        \
  extern const std::byte crosslane_fat_binary_##family##_end __attribute__((visibility("hidden")));  \
  }
// clang-format on
CROSSLANE_EMBED(local)
CROSSLANE_EMBED(exchange)
CROSSLANE_EMBED(low_latency)
CROSSLANE_EMBED(pipelined)
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
    case Family::pipelined:
      return {&crosslane_fat_binary_pipelined, &crosslane_fat_binary_pipelined_end};
    case Family::pairwise:
      return {&crosslane_fat_binary_pairwise, &crosslane_fat_binary_pairwise_end};
    case Family::copy:
      return {&crosslane_fat_binary_copy, &crosslane_fat_binary_copy_end};
  }
  return {};
}

}  // namespace crosslane::kernel
