// The GPU code that nvcc made of kernels.cu, as bytes of this library. See catalogue.h.
#include "kernel/catalogue.h"

asm(R"(
    .section .rodata
    .balign 16
    .type crosslane_fat_binary_begin, @object
crosslane_fat_binary_begin:
    .incbin ")" CROSSLANE_FAT_BINARY R"("
crosslane_fat_binary_end:
    .byte 0
    .previous
)");

extern "C" {
extern const std::byte crosslane_fat_binary_begin __attribute__((visibility("hidden")));
extern const std::byte crosslane_fat_binary_end __attribute__((visibility("hidden")));
}

namespace crosslane::kernel {

std::span<const std::byte> fat_binary() noexcept { return {&crosslane_fat_binary_begin, &crosslane_fat_binary_end}; }

}  // namespace crosslane::kernel
