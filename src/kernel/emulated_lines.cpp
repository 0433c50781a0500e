// The kernels for middling messages, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_LINES_KERNELS(CROSSLANE_EMULATED_ENTRY)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_lines() noexcept { return image; }

}  // namespace crosslane::kernel
