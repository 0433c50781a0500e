// See load.h.
#include "kernel/load.h"

#include "base/error.h"

namespace crosslane::kernel {
namespace {

const void* image_for(const gpu::Driver& driver, Family family) {
  if (!available(driver)) {
    throw base::Error(
        base::ErrorClass::unsupported,
        "this build of Crosslane has no GPU kernels; build it with a CUDA compiler (CROSSLANE_CUDA_KERNELS=ON)");
  }
  if (!driver.emulated) return fat_binary(family).data();
  switch (family) {
    case Family::local:
      return &emulated_local();
    case Family::exchange:
      return &emulated_exchange();
    case Family::low_latency:
      return &emulated_low_latency();
    case Family::lingering:
      return &emulated_lingering();
    case Family::lines:
      return &emulated_lines();
    case Family::pipelined:
      return &emulated_pipelined();
    case Family::ring:
      return &emulated_ring();
    case Family::pairwise:
      return &emulated_pairwise();
    case Family::copy:
      return &emulated_copy();
  }
  return nullptr;
}

}  // namespace

bool available(const gpu::Driver& driver) noexcept { return driver.emulated || !fat_binary(Family::local).empty(); }

gpu::Module load(const gpu::Driver& driver, Family family) { return {driver, image_for(driver, family)}; }

// The driver loads a kernel's code when it is first asked for more than its handle, which may wait for all that runs: so
// here, ahead of all that may spin.
gpu::Function loaded(const gpu::Module& module, const char* name) {
  const gpu::Function function = module.function(name);
  static_cast<void>(function.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS));
  return function;
}

}  // namespace crosslane::kernel
