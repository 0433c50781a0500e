// Entries: initialization, devices, contexts, peer access.
#include "gpu/emulated/memory.h"
#include "gpu/emulated/state.h"
#include "gpu/emulated/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace crosslane::gpu::emulated;

namespace {

int attribute_of(const Device& device, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'000'000;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    // Few, since blocks of concurrent kernels are threads of this machine.
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 4;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return std::stoi(device.pci.substr(5, 2), nullptr, 16);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return std::stoi(device.pci.substr(8, 2), nullptr, 16);
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return std::stoi(device.pci.substr(0, 4), nullptr, 16);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      return device.mps ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      return 0;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
      return -1;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return device.numa;
    default:
      return 0;  // every other attribute is a feature that is not there
  }
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) {
  return enter("cuInit", before_init, [&] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    initialize();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return enter("cuDriverGetVersion", before_init, [&] {
    require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
    *version = 12080;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return enter("cuDeviceGet", plain, [&] {
    require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
    *device = state().device(ordinal).ordinal;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return enter("cuDeviceGetCount", plain, [&] {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    *count = static_cast<int>(state().devices.size());
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return enter("cuDeviceGetName", plain, [&] {
    require(name != nullptr && length > 0, CUDA_ERROR_INVALID_VALUE);
    const std::string& text = state().device(device).name;
    const std::size_t copied = std::min(text.size(), static_cast<std::size_t>(length) - 1);
    std::memcpy(name, text.data(), copied);
    name[copied] = '\0';
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return enter("cuDeviceGetUuid_v2", plain, [&] {
    require(uuid != nullptr, CUDA_ERROR_INVALID_VALUE);
    *uuid = state().device(device).uuid;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return enter("cuDeviceTotalMem_v2", plain, [&] {
    require(bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
    *bytes = state().device(device).memory;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return enter("cuDeviceGetAttribute", plain, [&] {
    require(value != nullptr && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    *value = attribute_of(state().device(device), attribute);
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return enter("cuDeviceGetPCIBusId", plain, [&] {
    const std::string& pci = state().device(device).pci;
    require(text != nullptr && static_cast<std::size_t>(length) > pci.size(), CUDA_ERROR_INVALID_VALUE);
    std::memcpy(text, pci.c_str(), pci.size() + 1);
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return enter("cuDeviceGetByPCIBusId", plain, [&] {
    require(device != nullptr && text != nullptr, CUDA_ERROR_INVALID_VALUE);
    for (const auto& each : state().devices) {
      if (strcasecmp(each->pci.c_str(), text) == 0) {
        *device = each->ordinal;
        return;
      }
    }
    throw Failure{CUDA_ERROR_INVALID_DEVICE};
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  return enter("cuDeviceCanAccessPeer", plain, [&] {
    require(can != nullptr, CUDA_ERROR_INVALID_VALUE);
    *can = from != to && state().can_access(state().device(from), state().device(to)) ? 1 : 0;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  return enter("cuDeviceGetP2PAttribute", plain, [&] {
    require(value != nullptr && from != to, CUDA_ERROR_INVALID_VALUE);
    const bool access = state().can_access(state().device(from), state().device(to));
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = access ? 1 : 0;
        break;
      default:
        *value = 0;
    }
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxRetain", plain, [&] {
    require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
    Device& device = state().device(ordinal);
    const std::lock_guard lock(state().mutex);
    if (device.primary == nullptr) device.primary = make_context(device, device.primary_flags, true);
    ++device.primary_references;
    *context = device.primary;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxRelease_v2", plain, [&] {
    Device& device = state().device(ordinal);
    CUcontext last = nullptr;
    {
      const std::lock_guard lock(state().mutex);
      require(device.primary_references > 0, CUDA_ERROR_INVALID_CONTEXT);
      if (--device.primary_references == 0 && device.primary != nullptr) {
        last = std::exchange(device.primary, nullptr);
        state().contexts.erase(last);
      }
    }
    if (last != nullptr) destroy_context(last);
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return enter("cuDevicePrimaryCtxReset_v2", plain, [&] {
    Device& device = state().device(ordinal);
    CUcontext old = nullptr;
    {
      const std::lock_guard lock(state().mutex);
      old = std::exchange(device.primary, nullptr);
      if (old == nullptr) return;
      state().contexts.erase(old);
      // References stay, of which each holder gives back its own: measured on driver 580.
    }
    destroy_context(old);
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  return enter("cuDevicePrimaryCtxSetFlags_v2", plain, [&] {
    const std::lock_guard lock(state().mutex);
    Device& device = state().device(ordinal);
    device.primary_flags = flags;
    if (device.primary != nullptr) device.primary->flags = flags;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return enter("cuDevicePrimaryCtxGetState", plain, [&] {
    require(flags != nullptr && active != nullptr, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(state().mutex);
    const Device& device = state().device(ordinal);
    *flags = device.primary_flags;
    *active = device.primary != nullptr ? 1 : 0;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice ordinal) {
  return enter("cuCtxCreate", plain, [&] {
    require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
    Device& device = state().device(ordinal);
    const std::lock_guard lock(state().mutex);
    *context = make_context(device, flags, false);
    context_stack().push_back(*context);
  });
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device) {
  if (affinity != nullptr || count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return cuCtxCreate_v2(context, flags, device);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  if (parameters != nullptr && (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return cuCtxCreate_v2(context, flags, device);
}
#endif

CUresult cuCtxDestroy_v2(CUcontext context) {
  return enter("cuCtxDestroy_v2", plain, [&] {
    {
      const std::lock_guard lock(state().mutex);
      require(state().contexts.contains(context) && !context->primary, CUDA_ERROR_INVALID_CONTEXT);
      state().contexts.erase(context);
    }
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    destroy_context(context);
  });
}

CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return enter("cuCtxPushCurrent_v2", plain, [&] {
    {
      const std::lock_guard lock(state().mutex);
      if (state().ended.contains(context)) die_of_stale("cuCtxPushCurrent");
    }
    context_stack().push_back(&checked(context));
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return enter("cuCtxPopCurrent_v2", plain, [&] {
    auto& stack = context_stack();
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
  });
}

CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxPopCurrent_v2(context); }

CUresult cuCtxSetCurrent(CUcontext context) {
  return enter("cuCtxSetCurrent", plain, [&] {
    auto& stack = context_stack();
    if (context != nullptr) checked(context);
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return enter("cuCtxGetCurrent", plain, [&] {
    require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
    *context = context_stack().empty() ? nullptr : context_stack().back();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return enter("cuCtxGetDevice", plain, [&] {
    require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
    *device = current().device->ordinal;
  });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return enter("cuCtxGetFlags", plain, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    *flags = current().flags;
  });
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return enter("cuCtxGetId", plain, [&] {
    require(id != nullptr, CUDA_ERROR_INVALID_VALUE);
    *id = (context == nullptr ? current() : checked(context)).id;
  });
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  return enter("cuCtxGetApiVersion", plain, [&] {
    require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (context != nullptr) checked(context);
    *version = 3020;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter("cuCtxGetStreamPriorityRange", plain, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
  });
}

CUresult cuCtxSynchronize() {
  return enter("cuCtxSynchronize", unsafe_in_capture, [&] { synchronize(current()); });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return enter("cuCtxEnablePeerAccess", allocates, [&] {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    CUctx_st& mine = current();
    CUctx_st& other = checked(peer);
    require(mine.device != other.device && state().can_access(*mine.device, *other.device),
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    const std::lock_guard lock(state().mutex);
    require(mine.peers.insert(peer).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return enter("cuCtxDisablePeerAccess", plain, [&] {
    CUctx_st& mine = current();
    const std::lock_guard lock(state().mutex);
    require(mine.peers.erase(peer) == 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  });
}

}  // extern "C"
