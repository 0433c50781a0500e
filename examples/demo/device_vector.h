// A vector in GPU memory, by the CUDA driver API alone: what an application brings along.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace demo {

inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "demo: %s: %s\n", call, name);
  std::exit(1);
}

/// Makes this rank's GPU current: ranks share the GPUs of the machine in turn. Returns how many there are.
inline int choose_gpu(int rank) {
  int count = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&count), "cuDeviceGetCount");
  check(cuDeviceGet(&device, rank % count), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return count;
}

/// `size` ints in GPU memory. Reading and writing copy from and to the host.
class DeviceVector {
 public:
  explicit DeviceVector(std::size_t size) : size_(size) { check(cuMemAlloc(&address_, bytes()), "cuMemAlloc"); }
  explicit DeviceVector(const std::vector<int>& values) : DeviceVector(values.size()) {
    check(cuMemcpyHtoD(address_, values.data(), bytes()), "cuMemcpyHtoD");
  }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;
  ~DeviceVector() { cuMemFree(address_); }

  /// The device pointer, as MPI takes it.
  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }

  [[nodiscard]] std::vector<int> values() const {
    std::vector<int> result(size_);
    check(cuMemcpyDtoH(result.data(), address_, bytes()), "cuMemcpyDtoH");
    return result;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(int); }
  std::size_t size_;
  CUdeviceptr address_ = 0;
};

}  // namespace demo
