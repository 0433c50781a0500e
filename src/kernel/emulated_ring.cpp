// The kernels of rings, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type) \
  detail::row<RingReduction<type, op::functor>>("crosslane_ring_" #op_name "_" #element),
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_RING_KERNELS(CROSSLANE_EMULATED_ENTRY)
                                               CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_ring() noexcept { return image; }

}  // namespace crosslane::kernel
