// The names and descriptions of CUDA's errors: cuGetErrorName, cuGetErrorString and the reverse.
#include "gpu/emulated/faults.h"
#include "gpu/emulated/state.h"

#include <array>
#include <cstring>

namespace crosslane::gpu::emulated {
namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

// Every error that CUDA 12 knows. A description that CUDA words by the name alone is derived from it.
constexpr std::array error_texts{
    ErrorText{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ErrorText{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    ErrorText{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    ErrorText{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    ErrorText{CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    ErrorText{static_cast<CUresult>(5), "CUDA_ERROR_PROFILER_DISABLED", "profiler disabled"},
    ErrorText{static_cast<CUresult>(6), "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiler not initialized"},
    ErrorText{static_cast<CUresult>(7), "CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started"},
    ErrorText{static_cast<CUresult>(8), "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped"},
    ErrorText{static_cast<CUresult>(34), "CUDA_ERROR_STUB_LIBRARY", "stub library"},
    ErrorText{static_cast<CUresult>(36), "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "call requires newer driver"},
    ErrorText{static_cast<CUresult>(46), "CUDA_ERROR_DEVICE_UNAVAILABLE", "device unavailable"},
    ErrorText{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ErrorText{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    ErrorText{static_cast<CUresult>(102), "CUDA_ERROR_DEVICE_NOT_LICENSED", "device not licensed"},
    ErrorText{static_cast<CUresult>(200), "CUDA_ERROR_INVALID_IMAGE", "invalid image"},
    ErrorText{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    ErrorText{static_cast<CUresult>(202), "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current"},
    ErrorText{static_cast<CUresult>(205), "CUDA_ERROR_MAP_FAILED", "map failed"},
    ErrorText{static_cast<CUresult>(206), "CUDA_ERROR_UNMAP_FAILED", "unmap failed"},
    ErrorText{static_cast<CUresult>(207), "CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped"},
    ErrorText{static_cast<CUresult>(208), "CUDA_ERROR_ALREADY_MAPPED", "already mapped"},
    ErrorText{CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
              "no kernel image is available for execution on the device"},
    ErrorText{static_cast<CUresult>(210), "CUDA_ERROR_ALREADY_ACQUIRED", "already acquired"},
    ErrorText{static_cast<CUresult>(211), "CUDA_ERROR_NOT_MAPPED", "not mapped"},
    ErrorText{static_cast<CUresult>(212), "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "not mapped as array"},
    ErrorText{static_cast<CUresult>(213), "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "not mapped as pointer"},
    ErrorText{static_cast<CUresult>(214), "CUDA_ERROR_ECC_UNCORRECTABLE", "ecc uncorrectable"},
    ErrorText{static_cast<CUresult>(215), "CUDA_ERROR_UNSUPPORTED_LIMIT", "unsupported limit"},
    ErrorText{static_cast<CUresult>(216), "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "context already in use"},
    ErrorText{static_cast<CUresult>(217), "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access unsupported"},
    ErrorText{static_cast<CUresult>(218), "CUDA_ERROR_INVALID_PTX", "invalid ptx"},
    ErrorText{static_cast<CUresult>(219), "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context"},
    ErrorText{static_cast<CUresult>(220), "CUDA_ERROR_NVLINK_UNCORRECTABLE", "nvlink uncorrectable"},
    ErrorText{static_cast<CUresult>(221), "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "jit compiler not found"},
    ErrorText{static_cast<CUresult>(222), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "unsupported ptx version"},
    ErrorText{static_cast<CUresult>(223), "CUDA_ERROR_JIT_COMPILATION_DISABLED", "jit compilation disabled"},
    ErrorText{static_cast<CUresult>(224), "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "unsupported exec affinity"},
    ErrorText{static_cast<CUresult>(225), "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "unsupported devside sync"},
    ErrorText{static_cast<CUresult>(226), "CUDA_ERROR_CONTAINED", "contained"},
    ErrorText{static_cast<CUresult>(300), "CUDA_ERROR_INVALID_SOURCE", "invalid source"},
    ErrorText{static_cast<CUresult>(301), "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    ErrorText{static_cast<CUresult>(302), "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
              "shared object symbol not found"},
    ErrorText{static_cast<CUresult>(303), "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object init failed"},
    ErrorText{static_cast<CUresult>(304), "CUDA_ERROR_OPERATING_SYSTEM", "operating system"},
    ErrorText{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    ErrorText{static_cast<CUresult>(401), "CUDA_ERROR_ILLEGAL_STATE", "illegal state"},
    ErrorText{static_cast<CUresult>(402), "CUDA_ERROR_LOSSY_QUERY", "lossy query"},
    ErrorText{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    ErrorText{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    ErrorText{static_cast<CUresult>(700), "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"},
    ErrorText{static_cast<CUresult>(701), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "launch out of resources"},
    ErrorText{static_cast<CUresult>(702), "CUDA_ERROR_LAUNCH_TIMEOUT", "launch timeout"},
    ErrorText{static_cast<CUresult>(703), "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch incompatible texturing"},
    ErrorText{static_cast<CUresult>(704), "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access already enabled"},
    ErrorText{static_cast<CUresult>(705), "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access not enabled"},
    ErrorText{static_cast<CUresult>(708), "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "primary context active"},
    ErrorText{static_cast<CUresult>(709), "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    ErrorText{static_cast<CUresult>(710), "CUDA_ERROR_ASSERT", "assert"},
    ErrorText{static_cast<CUresult>(711), "CUDA_ERROR_TOO_MANY_PEERS", "too many peers"},
    ErrorText{static_cast<CUresult>(712), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
              "host memory already registered"},
    ErrorText{static_cast<CUresult>(713), "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory not registered"},
    ErrorText{static_cast<CUresult>(714), "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    ErrorText{static_cast<CUresult>(715), "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction"},
    ErrorText{static_cast<CUresult>(716), "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    ErrorText{static_cast<CUresult>(717), "CUDA_ERROR_INVALID_ADDRESS_SPACE", "invalid address space"},
    ErrorText{static_cast<CUresult>(718), "CUDA_ERROR_INVALID_PC", "invalid pc"},
    ErrorText{static_cast<CUresult>(719), "CUDA_ERROR_LAUNCH_FAILED", "launch failed"},
    ErrorText{static_cast<CUresult>(720), "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "cooperative launch too large"},
    ErrorText{static_cast<CUresult>(721), "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory leak"},
    ErrorText{static_cast<CUresult>(800), "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
    ErrorText{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    ErrorText{static_cast<CUresult>(802), "CUDA_ERROR_SYSTEM_NOT_READY", "system not ready"},
    ErrorText{static_cast<CUresult>(803), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system driver mismatch"},
    ErrorText{static_cast<CUresult>(804), "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
              "compat not supported on device"},
    ErrorText{static_cast<CUresult>(805), "CUDA_ERROR_MPS_CONNECTION_FAILED", "mps connection failed"},
    ErrorText{static_cast<CUresult>(806), "CUDA_ERROR_MPS_RPC_FAILURE", "mps rpc failure"},
    ErrorText{static_cast<CUresult>(807), "CUDA_ERROR_MPS_SERVER_NOT_READY", "mps server not ready"},
    ErrorText{static_cast<CUresult>(808), "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "mps max clients reached"},
    ErrorText{static_cast<CUresult>(809), "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "mps max connections reached"},
    ErrorText{static_cast<CUresult>(810), "CUDA_ERROR_MPS_CLIENT_TERMINATED", "mps client terminated"},
    ErrorText{static_cast<CUresult>(811), "CUDA_ERROR_CDP_NOT_SUPPORTED", "cdp not supported"},
    ErrorText{static_cast<CUresult>(812), "CUDA_ERROR_CDP_VERSION_MISMATCH", "cdp version mismatch"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
              "operation not permitted when stream is capturing"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
              "operation failed due to a previous error during capture"},
    ErrorText{static_cast<CUresult>(902), "CUDA_ERROR_STREAM_CAPTURE_MERGE", "stream capture merge"},
    ErrorText{static_cast<CUresult>(903), "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "stream capture unmatched"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
              "capturing stream has unjoined work"},
    ErrorText{static_cast<CUresult>(905), "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "stream capture isolation"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
              "operation would make the legacy stream depend on a capturing blocking stream"},
    ErrorText{static_cast<CUresult>(907), "CUDA_ERROR_CAPTURED_EVENT", "captured event"},
    ErrorText{static_cast<CUresult>(908), "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "stream capture wrong thread"},
    ErrorText{static_cast<CUresult>(909), "CUDA_ERROR_TIMEOUT", "timeout"},
    ErrorText{static_cast<CUresult>(910), "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "graph exec update failure"},
    ErrorText{static_cast<CUresult>(911), "CUDA_ERROR_EXTERNAL_DEVICE", "external device"},
    ErrorText{static_cast<CUresult>(912), "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
    ErrorText{static_cast<CUresult>(913), "CUDA_ERROR_FUNCTION_NOT_LOADED", "function not loaded"},
    ErrorText{static_cast<CUresult>(914), "CUDA_ERROR_INVALID_RESOURCE_TYPE", "invalid resource type"},
    ErrorText{static_cast<CUresult>(915), "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
              "invalid resource configuration"},
    ErrorText{static_cast<CUresult>(916), "CUDA_ERROR_KEY_ROTATION", "key rotation"},
    ErrorText{static_cast<CUresult>(999), "CUDA_ERROR_UNKNOWN", "unknown"},
};

}  // namespace

bool error_by_name(const char* name, CUresult& result) noexcept {
  for (const auto& error : error_texts) {
    if (std::strcmp(error.name, name) == 0) {
      result = error.code;
      return true;
    }
  }
  return false;
}

}  // namespace crosslane::gpu::emulated

using crosslane::gpu::emulated::error_texts;

// Like the driver's, these two work before cuInit and while it unloads.
extern "C" CUresult cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  for (const auto& entry : error_texts) {
    if (entry.code == error) *text = entry.name;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  for (const auto& entry : error_texts) {
    if (entry.code == error) *text = entry.text;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
