// See pinned_buffer.h.
#include "gpu/pinned_buffer.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

PinnedBuffer::PinnedBuffer(const Driver& driver, std::size_t bytes) : driver_(&driver), life_(driver), size_(bytes) {
  if (bytes == 0) return;
  const OutsideCaptures outside(driver);
  void* memory = nullptr;
  check(driver, driver.mem_host_alloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        fmt::format("cuMemHostAlloc of {} bytes", bytes));
  data_ = static_cast<std::byte*>(memory);
  if (const CUresult result = driver.mem_host_get_device_pointer(&device_address_, memory, 0); result != CUDA_SUCCESS) {
    driver.mem_free_host(memory);  // no destructor runs for what was not constructed
    check(driver, result, "cuMemHostGetDevicePointer");
  }
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : driver_(other.driver_),
      life_(other.life_),
      data_(std::exchange(other.data_, nullptr)),
      device_address_(std::exchange(other.device_address_, 0)),
      size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(data_, other.data_);
  std::swap(device_address_, other.device_address_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  const OwnerScope scope(*driver_, life_);
  if (!scope) return;
  const OutsideCaptures outside(*driver_);
  driver_->mem_free_host(data_);
}

PinnedRange::PinnedRange(const Driver& driver, void* data, std::size_t bytes) : driver_(&driver), life_(driver) {
  const OutsideCaptures outside(driver);
  check(driver, driver.mem_host_register(data, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        fmt::format("cuMemHostRegister of {} bytes", bytes));
  if (const CUresult result = driver.mem_host_get_device_pointer(&device_address_, data, 0); result != CUDA_SUCCESS) {
    driver.mem_host_unregister(data);
    check(driver, result, "cuMemHostGetDevicePointer");
  }
  data_ = data;
}

PinnedRange::PinnedRange(PinnedRange&& other) noexcept
    : driver_(other.driver_),
      life_(other.life_),
      data_(std::exchange(other.data_, nullptr)),
      device_address_(std::exchange(other.device_address_, 0)) {}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(data_, other.data_);
  std::swap(device_address_, other.device_address_);
  return *this;
}

PinnedRange::~PinnedRange() {
  if (data_ == nullptr) return;
  const OwnerScope scope(*driver_, life_);
  if (!scope) return;
  const OutsideCaptures outside(*driver_);
  driver_->mem_host_unregister(data_);
}

}  // namespace crosslane::gpu
