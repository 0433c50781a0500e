// The kernels for middling messages, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type) \
  detail::row<LowLatencyShares<type, op::functor, Lines>>("crosslane_lines_" #op_name "_" #element),
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_LINES_KERNELS(CROSSLANE_EMULATED_ENTRY)
                                               CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_lines() noexcept { return image; }

}  // namespace crosslane::kernel
