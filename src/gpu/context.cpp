// See context.h.
#include "gpu/context.h"

#include <cstring>
#include <utility>

namespace crosslane::gpu {

PrimaryContext::PrimaryContext(const Driver& driver, int ordinal) : driver_(&driver), device_(-1) {
  check(driver, driver.device_get(&device_, ordinal), fmt::format("cuDeviceGet of GPU {}", ordinal));
  check(driver, driver.device_primary_ctx_retain(&context_, device_),
        fmt::format("cuDevicePrimaryCtxRetain on GPU {}", ordinal));
}

PrimaryContext::PrimaryContext(PrimaryContext&& other) noexcept
    : driver_(other.driver_), device_(other.device_), context_(std::exchange(other.context_, nullptr)) {}

PrimaryContext& PrimaryContext::operator=(PrimaryContext&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(device_, other.device_);
  std::swap(context_, other.context_);
  return *this;
}

PrimaryContext::~PrimaryContext() {
  if (context_ != nullptr && !driver_->unloading()) driver_->device_primary_ctx_release(device_);
}

bool PrimaryContext::active(const Driver& driver, int ordinal) {
  CUdevice device = -1;
  unsigned flags = 0;
  int is_active = 0;
  check(driver, driver.device_get(&device, ordinal), "cuDeviceGet");
  check(driver, driver.device_primary_ctx_get_state(device, &flags, &is_active), "cuDevicePrimaryCtxGetState");
  return is_active != 0;
}

bool PrimaryContext::stands(const Driver& driver, CUdevice device) noexcept {
  unsigned flags = 0;
  int is_active = 0;
  return driver.device_primary_ctx_get_state(device, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
}

bool PrimaryContext::is(const Driver& driver, CUdevice device, CUcontext context) noexcept {
  CUcontext primary = nullptr;
  if (!stands(driver, device) || driver.device_primary_ctx_retain(&primary, device) != CUDA_SUCCESS) return false;
  driver.device_primary_ctx_release(device);
  return primary == context;
}

void ignore_captures_of_other_threads(const Driver& driver) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  check(driver, driver.thread_exchange_stream_capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
}

// Where the driver refuses, the calls themselves tell why they fail.
OutsideCaptures::OutsideCaptures(const Driver& driver) noexcept
    : driver_(driver), changed_(driver.thread_exchange_stream_capture_mode(&mode_) == CUDA_SUCCESS) {}

OutsideCaptures::~OutsideCaptures() {
  if (changed_ && !driver_.unloading()) driver_.thread_exchange_stream_capture_mode(&mode_);
}

int device_attribute(const Driver& driver, CUdevice_attribute attribute, int ordinal) {
  CUdevice device = -1;
  int value = 0;
  check(driver, driver.device_get(&device, ordinal), fmt::format("cuDeviceGet of GPU {}", ordinal));
  check(driver, driver.device_get_attribute(&value, attribute, device),
        fmt::format("cuDeviceGetAttribute {} of GPU {}", static_cast<int>(attribute), ordinal));
  return value;
}

std::array<std::uint8_t, 16> device_uuid(const Driver& driver, int ordinal) {
  CUdevice device = -1;
  CUuuid found{};
  check(driver, driver.device_get(&device, ordinal), fmt::format("cuDeviceGet of GPU {}", ordinal));
  check(driver, driver.device_get_uuid(&found, device), fmt::format("cuDeviceGetUuid of GPU {}", ordinal));
  std::array<std::uint8_t, 16> uuid{};
  static_assert(sizeof uuid == sizeof found);
  std::memcpy(uuid.data(), &found, sizeof found);
  return uuid;
}

int current_device(const Driver& driver) {
  CUdevice device = -1;
  check(driver, driver.ctx_get_device(&device), "cuCtxGetDevice");
  return device;
}

}  // namespace crosslane::gpu
