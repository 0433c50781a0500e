// See device.h. Frees nothing after the driver failed: the process ends then.
#include "common/device.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace crosslane::bench {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(fmt::format("{} failed: {}", call, name == nullptr ? "unknown error" : name));
}

// Beside the driver's own functions the emulated driver has this.
bool emulated() { return dlsym(RTLD_DEFAULT, "crosslane_emulated_forbid") != nullptr; }

Device::Device(int local_rank, int most_gpus) {
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&count_), "cuDeviceGetCount");
  if (most_gpus > 0) count_ = std::min(count_, most_gpus);
  if (count_ == 0) throw std::runtime_error("this node has no GPU");
  check(cuDeviceGet(&device_, local_rank % count_), "cuDeviceGet");
  std::array<char, 256> name{};
  check(cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_), "cuDeviceGetName");
  name_ = name.data();
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

bool Device::takes_turns() const {
  int mps = 0;  // drivers before 12.3 do not know the question
  if (cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device_) != CUDA_SUCCESS) mps = 0;
  return mps == 0;
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

PeerBuffer::PeerBuffer(const CUipcMemHandle& handle) {
  check(cuIpcOpenMemHandle(&address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
}
PeerBuffer::~PeerBuffer() { cuIpcCloseMemHandle(address_); }

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  if (bytes != 0) check(cuMemHostAlloc(&data_, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cuMemFreeHost(data_);
}

}  // namespace crosslane::bench
