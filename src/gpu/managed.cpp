// See managed.h.
#include "gpu/managed.h"

namespace crosslane::gpu {

bool shared_with_cpu(Gpu& gpu, const void* address) noexcept {
  const PointerInfo info = gpu.inspect(address);
  if (info.kind != PointerInfo::Kind::managed) return false;
  const Driver& driver = gpu.driver();  // is loaded: it said what the address is
  CUdevice device = -1;
  int concurrent = 0;
  return driver.device_get(&device, info.device) == CUDA_SUCCESS &&
         driver.device_get_attribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) ==
             CUDA_SUCCESS &&
         concurrent != 0;
}

}  // namespace crosslane::gpu
