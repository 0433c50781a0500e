// Entries of the emulated CUDA runtime: devices, versions, errors.
#include "gpu/emulated/runtime/properties.h"
#include "gpu/emulated/runtime/runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>

using namespace crosslane::gpu::emulated::runtime;

namespace {

struct ErrorName {
  Error error;
  const char* name;
};

// Where the runtime has a name of its own for what the driver says, too.
constexpr std::array error_names{
    ErrorName{CUDA_SUCCESS, "cudaSuccess"},
    ErrorName{CUDA_ERROR_INVALID_VALUE, "cudaErrorInvalidValue"},
    ErrorName{CUDA_ERROR_OUT_OF_MEMORY, "cudaErrorMemoryAllocation"},
    ErrorName{CUDA_ERROR_NOT_INITIALIZED, "cudaErrorInitializationError"},
    ErrorName{CUDA_ERROR_DEINITIALIZED, "cudaErrorCudartUnloading"},
    ErrorName{invalid_direction, "cudaErrorInvalidMemcpyDirection"},
    ErrorName{CUDA_ERROR_NO_DEVICE, "cudaErrorNoDevice"},
    ErrorName{CUDA_ERROR_INVALID_DEVICE, "cudaErrorInvalidDevice"},
    ErrorName{CUDA_ERROR_INVALID_CONTEXT, "cudaErrorDeviceUninitialized"},
    ErrorName{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "cudaErrorPeerAccessUnsupported"},
    ErrorName{CUDA_ERROR_INVALID_HANDLE, "cudaErrorInvalidResourceHandle"},
    ErrorName{CUDA_ERROR_NOT_FOUND, "cudaErrorSymbolNotFound"},
    ErrorName{CUDA_ERROR_NOT_READY, "cudaErrorNotReady"},
    ErrorName{CUDA_ERROR_ILLEGAL_ADDRESS, "cudaErrorIllegalAddress"},
    ErrorName{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "cudaErrorPeerAccessAlreadyEnabled"},
    ErrorName{CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "cudaErrorPeerAccessNotEnabled"},
    ErrorName{CUDA_ERROR_CONTEXT_IS_DESTROYED, "cudaErrorContextIsDestroyed"},
    ErrorName{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered"},
    ErrorName{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered"},
    ErrorName{CUDA_ERROR_LAUNCH_FAILED, "cudaErrorLaunchFailure"},
    ErrorName{CUDA_ERROR_NOT_PERMITTED, "cudaErrorNotPermitted"},
    ErrorName{CUDA_ERROR_NOT_SUPPORTED, "cudaErrorNotSupported"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_MERGE, "cudaErrorStreamCaptureMerge"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cudaErrorStreamCaptureUnmatched"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "cudaErrorStreamCaptureUnjoined"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cudaErrorStreamCaptureIsolation"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "cudaErrorStreamCaptureImplicit"},
    ErrorName{CUDA_ERROR_CAPTURED_EVENT, "cudaErrorCapturedEvent"},
    ErrorName{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "cudaErrorStreamCaptureWrongThread"},
    ErrorName{CUDA_ERROR_UNKNOWN, "cudaErrorUnknown"},
};

}  // namespace

extern "C" {

Error cudaGetLastError() { return last_error(true); }
Error cudaPeekAtLastError() { return last_error(false); }

const char* cudaGetErrorName(Error error) {
  for (const auto& known : error_names)
    if (known.error == error) return known.name;
  const char* name = nullptr;
  return cuGetErrorName(error, &name) == CUDA_SUCCESS ? name : "unrecognized error code";
}

const char* cudaGetErrorString(Error error) {
  if (error == invalid_direction) return "invalid copy direction for memcpy";
  const char* text = nullptr;
  return cuGetErrorString(error, &text) == CUDA_SUCCESS ? text : "unrecognized error code";
}

/// That of NVIDIA's runtime, which the program is linked with: this one stands in front of it.
Error cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return told(CUDA_ERROR_INVALID_VALUE);
  if (const auto next = reinterpret_cast<Error (*)(int*)>(dlsym(RTLD_NEXT, "cudaRuntimeGetVersion")); next != nullptr)
    return next(version);
  return told(cuDriverGetVersion(version));
}

/// Not older than the runtime, whose entries all work.
Error cudaDriverGetVersion(int* version) {
  int runtime = 0;
  if (const Error error = cudaRuntimeGetVersion(&runtime); error != CUDA_SUCCESS) return error;
  if (const Error error = cuDriverGetVersion(version); error != CUDA_SUCCESS) return told(error);
  *version = std::max(*version, runtime);
  return CUDA_SUCCESS;
}

Error cudaGetDeviceCount(int* count) {
  return run_without_context([&] { return cuDeviceGetCount(count); });
}

Error cudaSetDevice(int chosen) {
  return run_without_context([&] { return choose(chosen); });
}

/// The context is there then, but not the thread's.
Error cudaInitDevice(int chosen, unsigned /*device_flags*/, unsigned /*flags*/) {
  return run_without_context([&] {
    CUcontext context = nullptr;
    return cuDevicePrimaryCtxRetain(&context, chosen);
  });
}

Error cudaGetDevice(int* chosen) {
  if (chosen == nullptr) return told(CUDA_ERROR_INVALID_VALUE);
  *chosen = device();
  return CUDA_SUCCESS;
}

Error cudaSetDeviceFlags(unsigned flags) {
  return run_without_context([&] { return cuDevicePrimaryCtxSetFlags(device(), flags); });
}

Error cudaGetDeviceFlags(unsigned* flags) {
  return run([&] { return cuCtxGetFlags(flags); });
}

Error cudaSetValidDevices(int* /*devices*/, int /*count*/) { return told(initialise()); }

Error cudaDeviceSynchronize() {
  return run([] { return cuCtxSynchronize(); });
}

Error cudaDeviceReset() {
  return run([] {
    const Error error = cuDevicePrimaryCtxReset(device());
    forget_context();
    return error;
  });
}

Error cudaDeviceGetAttribute(int* value, CUdevice_attribute attribute, int of) {
  return run_without_context([&] { return cuDeviceGetAttribute(value, attribute, of); });
}

/// As compiled with CUDA 13.
Error cudaGetDeviceProperties(void* properties, int of) {
  return run_without_context([&] { return fill(properties, Release::cuda_13, of); });
}

/// As compiled with CUDA 12.
Error cudaGetDeviceProperties_v2(void* properties, int of) {
  return run_without_context([&] { return fill(properties, Release::cuda_12, of); });
}

Error cudaDeviceGetPCIBusId(char* text, int length, int of) {
  return run_without_context([&] { return cuDeviceGetPCIBusId(text, length, of); });
}

Error cudaDeviceGetByPCIBusId(int* found, const char* text) {
  return run_without_context([&] { return cuDeviceGetByPCIBusId(found, text); });
}

Error cudaDeviceCanAccessPeer(int* can, int from, int peer) {
  return run_without_context([&] { return cuDeviceCanAccessPeer(can, from, peer); });
}

Error cudaDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, int from, int peer) {
  return run_without_context([&] { return cuDeviceGetP2PAttribute(value, attribute, from, peer); });
}

Error cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return run([&] {
    CUcontext context = nullptr;
    const Error error = cuDevicePrimaryCtxRetain(&context, peer);
    return error == CUDA_SUCCESS ? cuCtxEnablePeerAccess(context, flags) : error;
  });
}

Error cudaDeviceDisablePeerAccess(int peer) {
  return run([&] {
    CUcontext context = nullptr;
    const Error error = cuDevicePrimaryCtxRetain(&context, peer);
    return error == CUDA_SUCCESS ? cuCtxDisablePeerAccess(context) : error;
  });
}

Error cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return run([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}

Error cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned version, std::uint64_t flags,
                                       int* found) {
  CUdriverProcAddressQueryResult result{};
  const Error error = cuGetProcAddress(name, entry, static_cast<int>(version), flags, &result);
  if (found != nullptr) *found = static_cast<int>(result);
  // What is not there is told by `found`.
  return told(error == CUDA_ERROR_NOT_FOUND && found != nullptr ? CUDA_SUCCESS : error);
}

/// As the program was built, as far as that can be told.
Error cudaGetDriverEntryPoint(const char* name, void** entry, std::uint64_t flags, int* found) {
  int version = 0;
  if (const Error error = cudaRuntimeGetVersion(&version); error != CUDA_SUCCESS) return error;
  return cudaGetDriverEntryPointByVersion(name, entry, static_cast<unsigned>(version), flags, found);
}

Error cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** entry, unsigned version, std::uint64_t flags,
                                            int* found) {
  return cudaGetDriverEntryPointByVersion(name, entry, version, flags | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                                          found);
}

Error cudaGetDriverEntryPoint_ptsz(const char* name, void** entry, std::uint64_t flags, int* found) {
  return cudaGetDriverEntryPoint(name, entry, flags | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, found);
}

Error cudaProfilerStart() { return CUDA_SUCCESS; }
Error cudaProfilerStop() { return CUDA_SUCCESS; }

}  // extern "C"
