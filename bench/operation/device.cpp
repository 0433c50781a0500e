// See device.h. Frees nothing after the driver failed: the process ends then.
#include "device.h"

#include <fmt/core.h>

#include <array>
#include <stdexcept>

namespace crosslane::bench {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(fmt::format("{} failed: {}", call, name == nullptr ? "unknown error" : name));
}

Device::Device(int local_rank) {
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&count_), "cuDeviceGetCount");
  if (count_ == 0) throw std::runtime_error("this node has no GPU");
  check(cuDeviceGet(&device_, local_rank % count_), "cuDeviceGet");
  std::array<char, 256> name{};
  check(cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_), "cuDeviceGetName");
  name_ = name.data();
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Device::~Device() {
  cuStreamDestroy(stream_);
  cuDevicePrimaryCtxRelease(device_);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes != 0) check(cuMemAlloc(&address_, bytes), "cuMemAlloc");
}

DeviceBuffer::~DeviceBuffer() {
  if (address_ != 0) cuMemFree(address_);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  if (bytes != 0) check(cuMemHostAlloc(&data_, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cuMemFreeHost(data_);
}

}  // namespace crosslane::bench
