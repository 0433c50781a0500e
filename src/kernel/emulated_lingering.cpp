// The kernels that stay for the next calls, for the emulated driver. See emulated_entries.h. Their blocks wait for each other.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type)                                                          \
  detail::row<Lingering<LowLatencyCombine<type, op::functor>>, true>("crosslane_lingering_combine_" #op_name    \
                                                                     "_" #element),                             \
      detail::row<Lingering<LowLatencyShares<type, op::functor>>, true>("crosslane_lingering_shares_" #op_name  \
                                                                        "_" #element),                          \
      detail::row<Lingering<ExchangeCombine<type, op::functor>>, true>("crosslane_lingering_exchange_" #op_name \
                                                                       "_" #element),
#define CROSSLANE_ALONE(name, ...) detail::row<__VA_ARGS__, true>(#name),
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_LINGERING_KERNELS(CROSSLANE_ALONE)
                                               CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_lingering() noexcept { return image; }

}  // namespace crosslane::kernel
