// The copies that one GPU runs by itself, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/copy_entries.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_COPY_KERNELS(CROSSLANE_EMULATED_ENTRY)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_copy() noexcept { return image; }

}  // namespace crosslane::kernel
