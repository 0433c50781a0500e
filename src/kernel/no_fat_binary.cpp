// In place of fat_binary.cpp where the library is built without a GPU compiler. See catalogue.h.
#include "kernel/catalogue.h"

namespace crosslane::kernel {

std::span<const std::byte> fat_binary(Family /*family*/) noexcept { return {}; }

}  // namespace crosslane::kernel
