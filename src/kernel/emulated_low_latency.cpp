// The kernels for small messages, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type) \
  detail::row<LowLatencyCombine<type, op::functor>>("crosslane_low_latency_" #op_name "_" #element),
#define CROSSLANE_SHARES_ROW(op_name, functor, element, type) \
  detail::row<LowLatencyShares<type, op::functor>>("crosslane_low_latency_shares_" #op_name "_" #element),
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_LOW_LATENCY_KERNELS(CROSSLANE_EMULATED_ENTRY)
                                               CROSSLANE_COMBINATIONS(CROSSLANE_ROW)
                                                   CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_SHARES_ROW)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_low_latency() noexcept { return image; }

}  // namespace crosslane::kernel
