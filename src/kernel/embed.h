// The bytes of CROSSLANE_FAT_BINARIES/<family>.fatbin (a definition of the compilation) in this object: from
// crosslane_fat_binary_<family> up to crosslane_fat_binary_<family>_end. It must not know what is in them.
#pragma once

#include <cstddef>

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
