// See runtime.h.
#include "gpu/emulated/runtime/runtime.h"

namespace crosslane::gpu::emulated::runtime {
namespace {

struct Thread {
  int device = 0;
  Error last = CUDA_SUCCESS;
};

Thread& thread() noexcept {
  static thread_local Thread mine;
  return mine;
}

}  // namespace

int device() noexcept {
  CUcontext current = nullptr;
  CUdevice found = 0;
  if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr && cuCtxGetDevice(&found) == CUDA_SUCCESS)
    return found;
  return thread().device;
}

Error choose(int chosen) noexcept {
  CUdevice found = 0;
  CUcontext primary = nullptr;
  if (const Error error = cuDeviceGet(&found, chosen); error != CUDA_SUCCESS) return error;
  if (const Error error = cuDevicePrimaryCtxRetain(&primary, found); error != CUDA_SUCCESS) return error;
  thread().device = chosen;
  return cuCtxSetCurrent(primary);
}

void forget_context() noexcept { cuCtxSetCurrent(nullptr); }

Error told(Error error) noexcept {
  if (error != CUDA_SUCCESS) thread().last = error;
  return error;
}

Error last_error(bool forget) noexcept {
  const Error last = thread().last;
  if (forget) thread().last = CUDA_SUCCESS;
  return last;
}

Error initialise() noexcept {
  static const Error begun = cuInit(0);
  return begun;
}

Error enter() noexcept {
  if (const Error error = initialise(); error != CUDA_SUCCESS) return error;
  CUcontext current = nullptr;
  if (const Error error = cuCtxGetCurrent(&current); error != CUDA_SUCCESS) return error;
  return current != nullptr ? CUDA_SUCCESS : choose(thread().device);
}

}  // namespace crosslane::gpu::emulated::runtime
