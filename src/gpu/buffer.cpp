// See buffer.h.
#include "gpu/buffer.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

Buffer::Buffer(const Driver& driver, std::size_t bytes) : driver_(&driver), life_(driver), size_(bytes) {
  if (bytes == 0) return;
  const OutsideCaptures outside(driver);
  check(driver, driver.mem_alloc(&pointer_, bytes), fmt::format("cuMemAlloc of {} bytes", bytes));
}

Buffer::Buffer(Buffer&& other) noexcept
    : driver_(other.driver_),
      life_(other.life_),
      pointer_(std::exchange(other.pointer_, 0)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(pointer_, other.pointer_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (pointer_ == 0) return;
  const OwnerScope scope(*driver_, life_);
  if (!scope) return;
  const OutsideCaptures outside(*driver_);
  driver_->mem_free(pointer_);
}

CUipcMemHandle Buffer::export_handle() const {
  if (pointer_ == 0) throw base::Error(base::ErrorClass::argument, "a buffer of no bytes has no memory to export");
  CUipcMemHandle handle{};
  const OutsideCaptures outside(*driver_);
  check(*driver_, driver_->ipc_get_mem_handle(&handle, pointer_), "cuIpcGetMemHandle");
  return handle;
}

}  // namespace crosslane::gpu
