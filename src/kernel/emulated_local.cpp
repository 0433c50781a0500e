// The reductions that one GPU runs by itself, for the emulated driver. See emulated_entries.h.
#include "kernel/catalogue.h"
#include "kernel/emulated_entries.h"

#include <iterator>

namespace crosslane::kernel {
namespace {

#define CROSSLANE_ROW(op_name, functor, element, type) \
  detail::row<Reduce<type, op::functor>>("crosslane_local_" #op_name "_" #element),
constexpr gpu::EmulatedKernel kernels[] = {CROSSLANE_COMBINATIONS(CROSSLANE_ROW)};
constexpr gpu::EmulatedImage image{.count = std::size(kernels), .kernels = kernels};

}  // namespace

const gpu::EmulatedImage& emulated_local() noexcept { return image; }

}  // namespace crosslane::kernel
