// See late_driver.h.
#include "common/late_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace crosslane::bench {
namespace {

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("{} failed with CUDA error {}", call, static_cast<int>(result)));
}

}  // namespace

template <class Function>
void LateDriver::find(const char* name, Function& function) const {
  void* const symbol = dlsym(library_, name);
  if (symbol == nullptr) throw std::runtime_error(fmt::format("the driver has no {}", name));
  std::memcpy(&function, &symbol, sizeof symbol);
}

LateDriver::LateDriver(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
  if (library_ == nullptr) throw std::runtime_error(fmt::format("the driver does not load: {}", dlerror()));
  decltype(&cuInit) init = nullptr;
  decltype(&cuDeviceGetCount) get_count = nullptr;
  find("cuInit", init);
  find("cuDeviceGetCount", get_count);
  find("cuDeviceGetName", device_get_name_);
  find("cuDriverGetVersion", driver_get_version_);
  find("cuDevicePrimaryCtxGetState", primary_state_);
  find("cuDevicePrimaryCtxRetain", primary_retain_);
  find("cuCtxSetCurrent", set_current_);
  find("cuCtxGetCurrent", get_current_);
  find("cuMemAlloc_v2", mem_alloc_);
  find("cuMemHostAlloc", mem_host_alloc_);
  find("cuPointerGetAttribute", pointer_get_attribute_);
  find("cuMemGetAddressRange_v2", mem_get_address_range_);
  check(init(0), "cuInit");
  check(get_count(&count_), "cuDeviceGetCount");
  if (count_ == 0) throw std::runtime_error("this machine has no GPU");
}

void LateDriver::use_gpu() {
  CUcontext context = nullptr;
  check(primary_retain_(&context, 0), "cuDevicePrimaryCtxRetain");
  check(set_current_(context), "cuCtxSetCurrent");
  check(mem_alloc_(&memory_, std::size_t{1} << 20), "cuMemAlloc");
}

void* LateDriver::pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(mem_host_alloc_(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  return memory;
}

bool LateDriver::ask(CUpointer_attribute attribute, CUdeviceptr address) const noexcept {
  unsigned long long answer = 0;
  return pointer_get_attribute_(&answer, attribute, address) == CUDA_SUCCESS;
}

bool LateDriver::ask_range(CUdeviceptr address) const noexcept {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  return mem_get_address_range_(&base, &size, address) == CUDA_SUCCESS;
}

int LateDriver::contexts() const {
  int contexts = 0;
  for (CUdevice device = 0; device < count_; ++device) {
    unsigned flags = 0;
    int active = 0;
    check(primary_state_(device, &flags, &active), "cuDevicePrimaryCtxGetState");
    contexts += active != 0 ? 1 : 0;
  }
  CUcontext current = nullptr;
  check(get_current_(&current), "cuCtxGetCurrent");
  return contexts > 0 ? contexts : current != nullptr ? 1 : 0;
}

std::string LateDriver::description() const {
  std::array<char, 128> name{};
  int version = 0;
  check(device_get_name_(name.data(), static_cast<int>(name.size()), 0), "cuDeviceGetName");
  check(driver_get_version_(&version), "cuDriverGetVersion");
  return fmt::format("{} x {}, driver API {}.{}", count_, name.data(), version / 1000, version % 1000 / 10);
}

}  // namespace crosslane::bench
