// See mapping.h.
#include "gpu/mapping.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

Mapping::Mapping(const Driver& driver, const CUipcMemHandle& handle) : driver_(&driver), life_(driver) {
  const OutsideCaptures outside(driver);
  check(driver, driver.ipc_open_mem_handle(&pointer_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle");
}

Mapping::Mapping(Mapping&& other) noexcept
    : driver_(other.driver_), life_(other.life_), pointer_(std::exchange(other.pointer_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(pointer_, other.pointer_);
  return *this;
}

Mapping::~Mapping() {
  if (pointer_ == 0) return;
  const OwnerScope scope(*driver_, life_);
  if (!scope) return;
  const OutsideCaptures outside(*driver_);
  driver_->ipc_close_mem_handle(pointer_);
}

}  // namespace crosslane::gpu
