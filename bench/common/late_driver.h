// The CUDA driver, loaded while the program runs and not linked: whether it is there is what the benchmark varies.
// It must not know MPI.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace crosslane::bench {

/// A driver library with the first GPU's primary context current, or without any context.
class LateDriver {
 public:
  /// `library`: libcuda.so.1 or a path. Throws std::runtime_error where it does not load or shows no GPU.
  explicit LateDriver(const std::string& library);

  /// Makes the first GPU's primary context, and memory in it, as a program does that uses the GPU.
  void use_gpu();
  /// Pinned host memory; needs use_gpu. It lives until the process ends.
  void* pinned(std::size_t bytes);
  /// The memory that use_gpu() has made.
  [[nodiscard]] CUdeviceptr memory() const noexcept { return memory_; }
  /// cuPointerGetAttribute for at most eight bytes; whether the driver has an answer.
  bool ask(CUpointer_attribute attribute, CUdeviceptr address) const noexcept;
  /// cuMemGetAddressRange.
  bool ask_range(CUdeviceptr address) const noexcept;

  /// How many GPUs have an active primary context in this process, or the thread a current one.
  [[nodiscard]] int contexts() const;
  /// The first GPU and the driver's version, e.g. "NVIDIA H200, driver 12.8".
  [[nodiscard]] std::string description() const;

 private:
  template <class Function>
  void find(const char* name, Function& function) const;

  void* library_;
  int count_ = 0;
  CUdeviceptr memory_ = 0;
  decltype(&cuDeviceGetName) device_get_name_ = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version_ = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) primary_state_ = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_retain_ = nullptr;
  decltype(&cuCtxSetCurrent) set_current_ = nullptr;
  decltype(&cuCtxGetCurrent) get_current_ = nullptr;
  decltype(&cuMemAlloc) mem_alloc_ = nullptr;
  decltype(&cuMemHostAlloc) mem_host_alloc_ = nullptr;
  decltype(&cuPointerGetAttribute) pointer_get_attribute_ = nullptr;
  decltype(&cuMemGetAddressRange) mem_get_address_range_ = nullptr;
};

}  // namespace crosslane::bench
