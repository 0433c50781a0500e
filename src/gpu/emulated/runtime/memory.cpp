// Entries of the emulated CUDA runtime: memory and copies.
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/runtime/runtime.h"

#include <array>
#include <cstddef>

using namespace crosslane::gpu::emulated;
using namespace crosslane::gpu::emulated::runtime;

namespace {

/// cudaMemcpyKind, of which all but the last say what the addresses say, too.
constexpr int kind_default = 4;

/// cudaMemoryType, and cudaPointerAttributes as far as CUDA 12 and 13 have it alike.
enum class MemoryType : int { unregistered, host, device, managed };
struct Attributes {
  MemoryType type;
  int device;
  void *on_device, *on_host;
};
constexpr int no_device = -2;  // cudaInvalidDeviceId

/// cudaPitchedPtr, cudaPos, cudaExtent, cudaMemcpy3DParms.
struct Pitched {
  void* pointer;
  std::size_t pitch, width, height;
};
struct Place {
  std::size_t x, y, z;
};
struct Extent {
  std::size_t width, height, depth;
};
struct Copy3D {
  void* source_array;
  Place source_place;
  Pitched source;
  void* target_array;
  Place target_place;
  Pitched target;
  Extent extent;
  int kind;
};

constexpr std::size_t pitch_alignment = 512;

bool known(int kind) noexcept { return kind >= 0 && kind <= kind_default; }

CUDA_MEMCPY2D plane(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                    std::size_t width, std::size_t height) noexcept {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(source);
  copy.dstDevice = address(target);
  copy.srcPitch = source_pitch;
  copy.dstPitch = target_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

CUDA_MEMCPY3D cube(const Copy3D& wanted) noexcept {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcXInBytes = wanted.source_place.x;
  copy.srcY = wanted.source_place.y;
  copy.srcZ = wanted.source_place.z;
  copy.srcDevice = address(wanted.source.pointer);
  copy.srcPitch = wanted.source.pitch;
  copy.srcHeight = wanted.source.height;
  copy.dstXInBytes = wanted.target_place.x;
  copy.dstY = wanted.target_place.y;
  copy.dstZ = wanted.target_place.z;
  copy.dstDevice = address(wanted.target.pointer);
  copy.dstPitch = wanted.target.pitch;
  copy.dstHeight = wanted.target.height;
  copy.WidthInBytes = wanted.extent.width;
  copy.Height = wanted.extent.height;
  copy.Depth = wanted.extent.depth;
  return copy;
}

/// Of nothing the runtime makes no allocation, and no error.
template <class Allocate>
Error allocated(void** pointer, std::size_t bytes, Allocate&& allocate) noexcept {
  return run([&] {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : allocate();
  });
}

CUdeviceptr* as_device(void** pointer) noexcept { return reinterpret_cast<CUdeviceptr*>(pointer); }

template <class Copy>
Error of_kind(int kind, Copy&& copy) noexcept {
  return known(kind) ? run(copy) : told(invalid_direction);
}

/// For entries that return when all is done, of programs with a default stream for each thread.
Error done_on_per_thread(Error enqueued) noexcept {
  return enqueued == CUDA_SUCCESS ? told(cuStreamSynchronize(CU_STREAM_PER_THREAD)) : enqueued;
}

}  // namespace

extern "C" {

Error cudaMalloc(void** pointer, std::size_t bytes) {
  return allocated(pointer, bytes, [&] { return cuMemAlloc(as_device(pointer), bytes); });
}

Error cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  if (pitch == nullptr) return told(CUDA_ERROR_INVALID_VALUE);
  *pitch = (width + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
  return cudaMalloc(pointer, *pitch * height);
}

Error cudaMalloc3D(Pitched* made, Extent extent) {
  if (made == nullptr) return told(CUDA_ERROR_INVALID_VALUE);
  *made = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&made->pointer, &made->pitch, extent.width, extent.height * extent.depth);
}

Error cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  return allocated(pointer, bytes, [&] { return cuMemAllocManaged(as_device(pointer), bytes, flags); });
}

Error cudaMallocAsync(void** pointer, std::size_t bytes, CUstream stream) {
  return allocated(pointer, bytes, [&] { return cuMemAllocAsync(as_device(pointer), bytes, stream); });
}

Error cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocated(pointer, bytes, [&] { return cuMemAllocFromPoolAsync(as_device(pointer), bytes, pool, stream); });
}

Error cudaFree(void* pointer) {
  return run([&] { return pointer == nullptr ? CUDA_SUCCESS : cuMemFree(address(pointer)); });
}

Error cudaFreeAsync(void* pointer, CUstream stream) {
  return run([&] { return cuMemFreeAsync(address(pointer), stream); });
}

Error cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return allocated(pointer, bytes, [&] { return cuMemHostAlloc(pointer, bytes, flags); });
}

Error cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

Error cudaFreeHost(void* pointer) {
  return run([&] { return pointer == nullptr ? CUDA_SUCCESS : cuMemFreeHost(pointer); });
}

Error cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return run([&] { return cuMemHostRegister(pointer, bytes, flags); });
}

Error cudaHostUnregister(void* pointer) {
  return run([&] { return cuMemHostUnregister(pointer); });
}

Error cudaHostGetDevicePointer(void** found, void* pointer, unsigned flags) {
  return run([&] { return cuMemHostGetDevicePointer(as_device(found), pointer, flags); });
}

Error cudaHostGetFlags(unsigned* flags, void* pointer) {
  return run([&] { return cuMemHostGetFlags(flags, pointer); });
}

Error cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return run([&] { return cuMemGetInfo(free, total); });
}

Error cudaPointerGetAttributes(Attributes* attributes, const void* pointer) {
  return run([&] {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned type = 0, managed = 0;
    int ordinal = no_device;
    void *on_device = nullptr, *on_host = nullptr;
    std::array names{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                     CU_POINTER_ATTRIBUTE_HOST_POINTER};
    std::array<void*, names.size()> values{&type, &managed, &ordinal, &on_device, &on_host};
    const Error error = cuPointerGetAttributes(names.size(), names.data(), values.data(), address(pointer));
    if (error != CUDA_SUCCESS) return error;
    const MemoryType found = managed != 0                   ? MemoryType::managed
                             : type == CU_MEMORYTYPE_DEVICE ? MemoryType::device
                             : type == CU_MEMORYTYPE_HOST   ? MemoryType::host
                                                            : MemoryType::unregistered;
    if (found == MemoryType::unregistered) {
      *attributes = {found, no_device, nullptr, const_cast<void*>(pointer)};
    } else {
      *attributes = {found, ordinal, on_device, on_host};
    }
    return CUDA_SUCCESS;
  });
}

// Hints, whose arguments CUDA 12 and 13 have differently: nothing is moved.
Error cudaMemAdvise() { return told(enter()); }
Error cudaMemAdvise_v2() { return told(enter()); }
Error cudaMemPrefetchAsync() { return told(enter()); }
Error cudaMemPrefetchAsync_ptsz() { return told(enter()); }
Error cudaMemPrefetchAsync_v2() { return told(enter()); }
Error cudaMemPrefetchAsync_v2_ptsz() { return told(enter()); }

Error cudaMemcpy(void* target, const void* source, std::size_t bytes, int kind) {
  return of_kind(kind, [&] { return bytes == 0 ? CUDA_SUCCESS : cuMemcpy(address(target), address(source), bytes); });
}

Error cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, int kind, CUstream stream) {
  return of_kind(
      kind, [&] { return bytes == 0 ? CUDA_SUCCESS : cuMemcpyAsync(address(target), address(source), bytes, stream); });
}

Error cudaMemcpyPeer(void* target, int /*its_device*/, const void* source, int /*its_device*/, std::size_t bytes) {
  return cudaMemcpy(target, source, bytes, kind_default);
}

Error cudaMemcpyPeerAsync(void* target, int /*its_device*/, const void* source, int /*its_device*/, std::size_t bytes,
                          CUstream stream) {
  return cudaMemcpyAsync(target, source, bytes, kind_default, stream);
}

Error cudaMemcpy2D(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                   std::size_t width, std::size_t height, int kind) {
  return of_kind(kind, [&] {
    const CUDA_MEMCPY2D copy = plane(target, target_pitch, source, source_pitch, width, height);
    return cuMemcpy2DUnaligned(&copy);
  });
}

Error cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                        std::size_t width, std::size_t height, int kind, CUstream stream) {
  return of_kind(kind, [&] {
    const CUDA_MEMCPY2D copy = plane(target, target_pitch, source, source_pitch, width, height);
    return cuMemcpy2DAsync(&copy, stream);
  });
}

Error cudaMemcpy3D(const Copy3D* wanted) {
  if (wanted == nullptr || wanted->source_array != nullptr || wanted->target_array != nullptr)
    return told(CUDA_ERROR_INVALID_VALUE);
  return of_kind(wanted->kind, [&] {
    const CUDA_MEMCPY3D copy = cube(*wanted);
    return cuMemcpy3D(&copy);
  });
}

Error cudaMemcpy3DAsync(const Copy3D* wanted, CUstream stream) {
  if (wanted == nullptr || wanted->source_array != nullptr || wanted->target_array != nullptr)
    return told(CUDA_ERROR_INVALID_VALUE);
  return of_kind(wanted->kind, [&] {
    const CUDA_MEMCPY3D copy = cube(*wanted);
    return cuMemcpy3DAsync(&copy, stream);
  });
}

Error cudaMemsetAsync(void* target, int value, std::size_t bytes, CUstream stream) {
  return run([&] {
    return bytes == 0 ? CUDA_SUCCESS
                      : cuMemsetD8Async(address(target), static_cast<unsigned char>(value), bytes, stream);
  });
}

Error cudaMemset(void* target, int value, std::size_t bytes) { return cudaMemsetAsync(target, value, bytes, nullptr); }

Error cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height,
                        CUstream stream) {
  return run([&] {
    return cuMemsetD2D8Async(address(target), pitch, static_cast<unsigned char>(value), width, height, stream);
  });
}

Error cudaMemset2D(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync(target, pitch, value, width, height, nullptr);
}

Error cudaDeviceGetDefaultMemPool(CUmemoryPool* pool, int device) {
  return run([&] { return cuDeviceGetDefaultMemPool(pool, device); });
}

Error cudaDeviceGetMemPool(CUmemoryPool* pool, int device) {
  return run([&] { return cuDeviceGetMemPool(pool, device); });
}

Error cudaMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return run([&] { return cuMemPoolSetAttribute(pool, attribute, value); });
}

Error cudaMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes) {
  return run([&] { return cuMemPoolTrimTo(pool, bytes); });
}

Error cudaIpcGetMemHandle(CUipcMemHandle* handle, void* pointer) {
  return run([&] { return cuIpcGetMemHandle(handle, address(pointer)); });
}

Error cudaIpcOpenMemHandle(void** pointer, CUipcMemHandle handle, unsigned flags) {
  return run([&] { return cuIpcOpenMemHandle(as_device(pointer), handle, flags); });
}

Error cudaIpcCloseMemHandle(void* pointer) {
  return run([&] { return cuIpcCloseMemHandle(address(pointer)); });
}

// As compiled for default streams of the threads.
Error cudaMallocAsync_ptsz(void** pointer, std::size_t bytes, CUstream stream) {
  return on_per_thread(cudaMallocAsync, pointer, bytes, stream);
}

Error cudaMallocFromPoolAsync_ptsz(void** pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  return on_per_thread(cudaMallocFromPoolAsync, pointer, bytes, pool, stream);
}

Error cudaFreeAsync_ptsz(void* pointer, CUstream stream) { return on_per_thread(cudaFreeAsync, pointer, stream); }

Error cudaMemcpyAsync_ptsz(void* target, const void* source, std::size_t bytes, int kind, CUstream stream) {
  return on_per_thread(cudaMemcpyAsync, target, source, bytes, kind, stream);
}

Error cudaMemcpy_ptds(void* target, const void* source, std::size_t bytes, int kind) {
  return done_on_per_thread(cudaMemcpyAsync_ptsz(target, source, bytes, kind, nullptr));
}

Error cudaMemcpy2DAsync_ptsz(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                             std::size_t width, std::size_t height, int kind, CUstream stream) {
  return on_per_thread(cudaMemcpy2DAsync, target, target_pitch, source, source_pitch, width, height, kind, stream);
}

Error cudaMemcpy2D_ptds(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                        std::size_t width, std::size_t height, int kind) {
  return done_on_per_thread(
      cudaMemcpy2DAsync_ptsz(target, target_pitch, source, source_pitch, width, height, kind, nullptr));
}

Error cudaMemcpy3DAsync_ptsz(const Copy3D* wanted, CUstream stream) {
  return on_per_thread(cudaMemcpy3DAsync, wanted, stream);
}

Error cudaMemcpy3D_ptds(const Copy3D* wanted) { return done_on_per_thread(cudaMemcpy3DAsync_ptsz(wanted, nullptr)); }

Error cudaMemsetAsync_ptsz(void* target, int value, std::size_t bytes, CUstream stream) {
  return on_per_thread(cudaMemsetAsync, target, value, bytes, stream);
}

Error cudaMemset_ptds(void* target, int value, std::size_t bytes) {
  return cudaMemsetAsync_ptsz(target, value, bytes, nullptr);
}

Error cudaMemset2DAsync_ptsz(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height,
                             CUstream stream) {
  return on_per_thread(cudaMemset2DAsync, target, pitch, value, width, height, stream);
}

Error cudaMemset2D_ptds(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync_ptsz(target, pitch, value, width, height, nullptr);
}

}  // extern "C"
