// See driver.h. The table and the turning of its errors into ours.
#include "gpu/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <string>

#define CROSSLANE_STRING(name) #name
#define CROSSLANE_SYMBOL(name) CROSSLANE_STRING(name)  // after the header's macros: "cuMemAlloc_v2"

extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library) noexcept;  // Itanium C++ ABI, 3.3.6
extern "C" void* __dso_handle;

namespace crosslane::gpu {
namespace {

template <class Function>
Function find(void* library, const char* symbol) {
  auto* function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function == nullptr) {
    throw base::Error(
        base::ErrorClass::unsupported,
        "the CUDA driver library (libcuda.so.1) has no {}: it is older than CUDA 12.0; update the NVIDIA driver, "
        "or set CROSSLANE_GPU=none",
        symbol);
  }
  return function;
}

std::string_view remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "free GPU memory (other processes on this GPU count too) or use smaller buffers";
    case CUDA_ERROR_NOT_INITIALIZED:
      return "no CUDA call was made yet in this process, or it forked after one: call CUDA after fork";
    case CUDA_ERROR_DEINITIALIZED:
      return "the process is exiting: finish communication before main returns";
    case CUDA_ERROR_INVALID_VALUE:
      return "check that the buffer is allocated, not freed, and as large as the call says";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "no CUDA context is current, or it was destroyed";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "a kernel touched memory out of bounds, perhaps earlier: run under compute-sanitizer";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "this build has no kernels for this GPU or driver: they are for compute capability 8.0 and newer, and "
             "need a driver as new as the CUDA toolkit they were built with";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "a CUDA graph is being captured: do this before the capture begins";
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "the machine's driver is not in order: see nvidia-smi";
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
      return "MPS serves so many processes a GPU: run fewer of them on this one at a time";
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return "MPS has so many hardware queues a GPU: run fewer processes on this one at a time, or with a lower "
             "CUDA_DEVICE_MAX_CONNECTIONS";
    default:
      return "see CUDA's description of the error; an earlier asynchronous failure may be its cause";
  }
}

}  // namespace

Driver Driver::from_library(void* library) {
  Driver driver;
#define CROSSLANE_LOAD(member, function) \
  driver.member = find<decltype(driver.member)>(library, CROSSLANE_SYMBOL(function));
  CROSSLANE_DRIVER_FUNCTIONS(CROSSLANE_LOAD)
#undef CROSSLANE_LOAD
  driver.event_elapsed_time = find<decltype(driver.event_elapsed_time)>(library, "cuEventElapsedTime");
  driver.ctx_record_event = reinterpret_cast<decltype(driver.ctx_record_event)>(dlsym(library, "cuCtxRecordEvent"));
  driver.memcpy_batch_async =
      reinterpret_cast<decltype(driver.memcpy_batch_async)>(dlsym(library, "cuMemcpyBatchAsync"));
  driver.emulated = dlsym(library, "crosslane_emulated_forbid") != nullptr;
  driver.emulated_refusal =
      reinterpret_cast<decltype(driver.emulated_refusal)>(dlsym(library, "crosslane_emulated_refusal"));
  // Exit handlers run in reverse order of registration, so this one before the driver's own (it is loaded already).
  driver.unloading_ = new std::atomic<bool>(false);
  __cxa_atexit([](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true, std::memory_order_relaxed); },
               driver.unloading_, &__dso_handle);
  return driver;
}

void check(const Driver& driver, CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  const char* name = nullptr;
  const char* text = nullptr;
  driver.get_error_name(result, &name);
  driver.get_error_string(result, &text);
  const auto error_class = result == CUDA_ERROR_OUT_OF_MEMORY   ? base::ErrorClass::no_memory
                           : result == CUDA_ERROR_INVALID_VALUE ? base::ErrorClass::argument
                           : result == CUDA_ERROR_NOT_SUPPORTED ? base::ErrorClass::unsupported
                                                                : base::ErrorClass::other;
  const std::string named =
      name != nullptr ? std::string(name) : fmt::format("CUDA error {}", static_cast<int>(result));
  if (const char* const why = driver.emulated_refusal == nullptr ? nullptr : driver.emulated_refusal(); why != nullptr)
    throw base::Error(error_class, "{} failed with {}: {}", call, named, why);
  throw base::Error(error_class, "{} failed with {} ({}): {}", call, named, text != nullptr ? text : "no description",
                    remedy(result));
}

}  // namespace crosslane::gpu
