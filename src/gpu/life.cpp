// See life.h.
#include "gpu/life.h"

#include "gpu/context.h"

namespace crosslane::gpu {

Life::Life(const Driver& driver) noexcept : driver_(&driver) {
  if (driver.ctx_get_current(&context_) != CUDA_SUCCESS || context_ == nullptr) return;
  if (driver.ctx_get_device(&device_) != CUDA_SUCCESS || driver.ctx_get_id(context_, &id_) != CUDA_SUCCESS) {
    context_ = nullptr;
    return;
  }
  primary_ = PrimaryContext::is(driver, device_, context_);
}

Life Life::of(const Driver& driver, CUcontext context) {
  const ContextScope scope(driver, context);
  return Life(driver);
}

bool Life::over() const noexcept {
  if (context_ == nullptr || driver_->unloading()) return true;
  // Asked first: a context that was released by all its holders is no context to ask anything of.
  if (primary_ && !PrimaryContext::stands(*driver_, device_)) return true;
  unsigned long long id = 0;
  return driver_->ctx_get_id(context_, &id) != CUDA_SUCCESS || id != id_;
}

}  // namespace crosslane::gpu
