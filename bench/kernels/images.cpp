// See images.h.
#include "kernels/images.h"

namespace crosslane::bench {

std::string no_kernels() {
  if (emulated()) return "the GPUs are emulated";
  if (busy_image().empty()) return "this build has no GPU compiler";
  return {};
}

Module::Module(std::span<const std::byte> image) {
  check(cuModuleLoadData(&module_, image.data()), "cuModuleLoadData");
}

Module::~Module() { cuModuleUnload(module_); }

CUfunction Module::function(const char* name) const {
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
  return function;
}

}  // namespace crosslane::bench
