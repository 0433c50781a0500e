// Entries: allocating, freeing and describing memory.
#include "gpu/emulated/capture.h"
#include "gpu/emulated/memory.h"
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/stream.h"

using namespace crosslane::gpu::emulated;
using Kind = Range::Kind;

// A pool of stream-ordered memory: where its memory lies is all that it keeps.
struct CUmemPoolHandle_st {
  Device* device = nullptr;
};

namespace {

CUmemoryPool default_pool(Device& device) {
  static auto& pools = *new std::unordered_map<const Device*, std::unique_ptr<CUmemPoolHandle_st>>();
  const std::lock_guard lock(state().mutex);
  auto& pool = pools[&device];
  if (!pool) {
    pool = std::make_unique<CUmemPoolHandle_st>();
    pool->device = &device;
  }
  return pool.get();
}

// Freeing waits for the whole device, as CUDA's does: a kernel that waits for this host then never ends.
void free_after_work(CUdeviceptr pointer, std::initializer_list<Kind> kinds) {
  const auto range = memory().find_base(pointer);
  require(range.has_value(), CUDA_ERROR_INVALID_VALUE);
  if (range->device != nullptr) synchronize_device(*range->device);
  memory().free(pointer, kinds);
}

template <class Value>
void give(void* data, Value value) {
  *static_cast<Value*>(data) = value;
}

// One attribute of a range; false where this kind of memory has none such.
bool describe(const Range& range, CUdeviceptr address, CUpointer_attribute attribute, void* data) {
  const bool host = range.kind == Kind::pinned || range.kind == Kind::registered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      give<CUcontext>(data, range.context);
      return range.context != nullptr;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      give<CUmemorytype>(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      give<CUdeviceptr>(data, address);
      return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      give<void*>(data, range.on_gpu() ? nullptr : reinterpret_cast<void*>(address));
      return !range.on_gpu();
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      give<unsigned>(data, 0);
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      give<unsigned long long>(data, range.buffer_id);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      give<unsigned>(data, range.kind == Kind::managed ? 1 : 0);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      give<int>(data, range.device->ordinal);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      give<unsigned>(data, range.kind == Kind::device ? 1 : 0);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      give<CUdeviceptr>(data, range.base);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      give<std::size_t>(data, range.size);
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      give<unsigned>(data, 1);
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      give<unsigned>(data,
                     range.kind == Kind::mapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE);
      return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      give<unsigned>(
          data, range.writable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      give<CUmemoryPool>(data, range.kind == Kind::pool ? default_pool(*range.device) : nullptr);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      give<unsigned>(data, 0);
      return true;
    default:
      return false;
  }
}

// What cuPointerGetAttributes answers for memory that it does not know, instead of failing.
void describe_unknown(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      give<int>(data, CU_DEVICE_INVALID);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      give<unsigned>(data, 0);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      give<unsigned>(data, 0);
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      give<std::uint64_t>(data, 0);
      break;
    default:
      throw Failure{CUDA_ERROR_INVALID_VALUE};
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return enter("cuMemGetInfo_v2", plain, [&] {
    require(free_bytes != nullptr && total != nullptr, CUDA_ERROR_INVALID_VALUE);
    const Device& device = *current().device;
    *total = device.memory;
    *free_bytes = device.memory - device.used.load();
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  return enter("cuMemAlloc_v2", allocates | unsafe_in_capture, [&] {
    require(pointer != nullptr, CUDA_ERROR_INVALID_VALUE);
    CUctx_st& context = current();
    *pointer = memory().allocate(*context.device, bytes, Kind::device, &context);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  return enter("cuMemAllocPitch_v2", allocates | unsafe_in_capture, [&] {
    require(pointer != nullptr && pitch != nullptr && width != 0 && height != 0, CUDA_ERROR_INVALID_VALUE);
    require(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    CUctx_st& context = current();
    *pitch = round_up(width, 512);
    *pointer = memory().allocate(*context.device, *pitch * height, Kind::device, &context);
  });
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return enter("cuMemFree_v2", allocates | unsafe_in_capture, [&] {
    if (pointer != 0) free_after_work(pointer, {Kind::device, Kind::pool, Kind::managed});
  });
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return enter("cuMemHostAlloc", allocates | unsafe_in_capture, [&] {
    constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    require(pointer != nullptr && (flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
    *pointer = reinterpret_cast<void*>(memory().allocate_host(bytes, Kind::pinned, flags, current()));
  });
}

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

CUresult cuMemFreeHost(void* pointer) {
  return enter("cuMemFreeHost", allocates | unsafe_in_capture, [&] {
    if (pointer != nullptr) free_after_work(reinterpret_cast<CUdeviceptr>(pointer), {Kind::pinned});
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned flags) {
  return enter("cuMemHostGetDevicePointer_v2", plain, [&] {
    require(device != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    const auto range = memory().find(reinterpret_cast<CUdeviceptr>(host));
    require(range && (range->kind == Kind::pinned || range->kind == Kind::registered), CUDA_ERROR_INVALID_VALUE);
    *device = reinterpret_cast<CUdeviceptr>(host);
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* host) {
  return enter("cuMemHostGetFlags", plain, [&] {
    const auto range = memory().find(reinterpret_cast<CUdeviceptr>(host));
    require(flags != nullptr && range && (range->kind == Kind::pinned || range->kind == Kind::registered),
            CUDA_ERROR_INVALID_VALUE);
    *flags = range->flags;
  });
}

CUresult cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
  return enter("cuMemHostRegister_v2", allocates | unsafe_in_capture, [&] {
    constexpr unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    require((flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
    memory().register_host(reinterpret_cast<CUdeviceptr>(host), bytes, flags, current());
  });
}

CUresult cuMemHostRegister(void* host, size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(host, bytes, flags);
}

CUresult cuMemHostUnregister(void* host) {
  return enter("cuMemHostUnregister", allocates | unsafe_in_capture, [&] {
    const auto range = memory().find_base(reinterpret_cast<CUdeviceptr>(host));
    require(range && range->kind == Kind::registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    free_after_work(reinterpret_cast<CUdeviceptr>(host), {Kind::registered});
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  return enter("cuMemAllocManaged", allocates | unsafe_in_capture, [&] {
    require(pointer != nullptr && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST),
            CUDA_ERROR_INVALID_VALUE);
    *pointer = memory().allocate_host(bytes, Kind::managed, flags, current());
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  return enter("cuMemGetAddressRange_v2", plain, [&] {
    const auto range = memory().find(pointer);
    require(range.has_value(), CUDA_ERROR_NOT_FOUND);
    if (base != nullptr) *base = range->base;
    if (size != nullptr) *size = range->size;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return enter("cuPointerGetAttribute", plain, [&]() -> CUresult {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto range = memory().find(pointer);
    return range && describe(*range, pointer, attribute, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  return enter("cuPointerGetAttributes", plain, [&] {
    require(attributes != nullptr && data != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
    const auto range = memory().find(pointer);
    for (unsigned at = 0; at < count; ++at) {
      if (!range || !describe(*range, pointer, attributes[at], data[at])) describe_unknown(attributes[at], data[at]);
    }
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return enter("cuPointerSetAttribute", unsafe_in_capture, [&] {
    // Synchronous memory operations are what emulation has anyway as far as other processes can see. An H200's driver refuses mapped memory.
    const auto range = memory().find(pointer);
    require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && range, CUDA_ERROR_INVALID_VALUE);
    require(range->kind != Range::Kind::mapped, CUDA_ERROR_NOT_SUPPORTED);
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return enter("cuDeviceGetDefaultMemPool", plain, [&] {
    require(pool != nullptr, CUDA_ERROR_INVALID_VALUE);
    *pool = default_pool(state().device(device));
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute, void* value) {
  return enter("cuMemPoolSetAttribute", plain,
               [&] { require(pool != nullptr && value != nullptr, CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return enter("cuMemPoolTrimTo", plain, [&] { require(pool != nullptr, CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream handle) {
  return enter("cuMemAllocFromPoolAsync", allocates, [&] {
    require(pointer != nullptr && pool != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    // Within a graph the address would belong to the graph: not emulated, and said so by the error.
    require(!captured_point(*stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    // Given at once, which is earlier than the stream's order asks for.
    *pointer = memory().allocate(*pool->device, bytes, Kind::pool, nullptr);
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
  CUmemoryPool pool = nullptr;
  const CUresult result =
      enter("cuMemAllocAsync", allocates, [&] { pool = default_pool(*resolve(handle)->context.device); });
  return result != CUDA_SUCCESS ? result : cuMemAllocFromPoolAsync(pointer, bytes, pool, handle);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  return enter("cuMemFreeAsync", allocates, [&] {
    const auto range = memory().find_base(pointer);
    require(range && (range->kind == Kind::pool || range->kind == Kind::device), CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    require(!captured_point(*stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    submit(stream, CU_GRAPH_NODE_TYPE_MEM_FREE,
           [pointer](const Running&) { memory().free(pointer, {Kind::pool, Kind::device}); });
  });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return on_per_thread(cuMemAllocAsync, pointer, bytes, stream);
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return on_per_thread(cuMemAllocFromPoolAsync, pointer, bytes, pool, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return on_per_thread(cuMemFreeAsync, pointer, stream);
}

}  // extern "C"
