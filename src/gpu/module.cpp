// See module.h.
#include "gpu/module.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

void Function::launch_with(StreamView stream, Grid blocks, Grid threads, std::size_t shared_bytes,
                           void** parameters) const {
  const CUresult result =
      driver_->launch_kernel(function_, blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
                             static_cast<unsigned>(shared_bytes), stream.handle(), parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]] {
    check(*driver_, result,
          fmt::format("cuLaunchKernel of {}x{}x{} blocks of {}x{}x{} threads", blocks.x, blocks.y, blocks.z, threads.x,
                      threads.y, threads.z));
  }
}

int Function::attribute(CUfunction_attribute which) const {
  int value = 0;
  check(*driver_, driver_->func_get_attribute(&value, which, function_), "cuFuncGetAttribute");
  return value;
}

int Function::resident_blocks(int threads, std::size_t shared_bytes) const {
  int blocks = 0;
  check(*driver_, driver_->occupancy_max_active_blocks(&blocks, function_, threads, shared_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

Module::Module(const Driver& driver, const void* image) : driver_(&driver), life_(driver) {
  const OutsideCaptures outside(driver);
  check(driver, driver.module_load_data(&module_, image), "cuModuleLoadData");
}

Module::Module(Module&& other) noexcept
    : driver_(other.driver_), life_(other.life_), module_(std::exchange(other.module_, nullptr)) {}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(module_, other.module_);
  return *this;
}

Module::~Module() {
  if (module_ == nullptr) return;
  const OwnerScope scope(*driver_, life_);
  if (!scope) return;
  const OutsideCaptures outside(*driver_);
  driver_->module_unload(module_);
}

Function Module::function(const char* name) const {
  CUfunction function = nullptr;
  check(*driver_, driver_->module_get_function(&function, module_, name),
        fmt::format("cuModuleGetFunction of '{}'", name));
  return {*driver_, function};
}

}  // namespace crosslane::gpu
