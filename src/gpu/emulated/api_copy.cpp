// Entries: copies and fills. Every form is a box of rows and slices; only how it is described differs.
#include "gpu/emulated/capture.h"
#include "gpu/emulated/memory.h"
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/stream.h"

#include <algorithm>
#include <cstring>

using namespace crosslane::gpu::emulated;

namespace {

// One side of a box: where it starts, and the bytes from row to row and slice to slice.
struct Side {
  Address address = 0;
  std::size_t pitch = 0, slice = 0;
  bool must_be_known = false;  // given as a device pointer, not as "unified" or host memory
};

struct Box {
  Side to, from;
  std::size_t width = 0, height = 1, depth = 1;

  [[nodiscard]] bool empty() const { return width == 0 || height == 0 || depth == 0; }
  [[nodiscard]] std::size_t extent(const Side& side) const {
    return (depth - 1) * side.slice + (height - 1) * side.pitch + width;
  }
};

void move(const Box& box, unsigned char* to, const unsigned char* from) {
  for (std::size_t z = 0; z < box.depth; ++z) {
    for (std::size_t y = 0; y < box.height; ++y) {
      std::memmove(to + z * box.to.slice + y * box.to.pitch, from + z * box.from.slice + y * box.from.pitch, box.width);
    }
  }
}

bool pageable(Address address) { return !memory().in_device_space(address) && !memory().find(address); }

// A fill is a kernel of the stream's GPU: another GPU's memory is for it only where peer access is enabled. Copies find
// their way without.
bool fills(const CUctx_st& context, Address address) {
  const auto range = memory().find(address);
  if (!range || range->kind != Range::Kind::device || range->device == context.device) return true;
  const std::lock_guard lock(state().mutex);
  return context.peers.contains(range->context);
}

bool on_gpu(Address address) {
  const auto range = memory().find(address);
  return range && range->on_gpu();
}

enum class Call { synchronous, asynchronous };

void copy(const Box& box, const std::shared_ptr<Stream>& stream, Call call) {
  if (box.empty()) return;
  memory().check(box.to.address, box.extent(box.to), box.to.must_be_known);
  memory().check(box.from.address, box.extent(box.from), box.from.must_be_known);
  auto* const to = static_cast<unsigned char*>(memory().cpu(box.to.address));
  const auto* from = static_cast<const unsigned char*>(memory().cpu(box.from.address));
  const bool capturing = captured_point(*stream).has_value();
  const bool from_pageable = pageable(box.from.address);
  const bool to_pageable = pageable(box.to.address);

  if (call == Call::asynchronous && !capturing && from_pageable && !to_pageable) {
    // As CUDA does it: the source is read before the call returns, the caller may change it at once.
    auto staged = std::make_shared<std::vector<unsigned char>>(box.extent(box.from));
    Box to_staging = box;
    to_staging.to.pitch = box.from.pitch;
    to_staging.to.slice = box.from.slice;
    move(to_staging, staged->data(), from);
    submit(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [box, to, staged](const Running&) { move(box, to, staged->data()); });
    return;
  }
  const Point done =
      submit(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [box, to, from](const Running&) { move(box, to, from); });
  // CUDA's rules of synchrony: to pageable memory always waits; a synchronous call waits unless both sides are on GPUs.
  if (to_pageable || (call == Call::synchronous && !(on_gpu(box.to.address) && on_gpu(box.from.address)))) done.wait();
}

Box line(Address to, Address from, std::size_t bytes, bool to_known, bool from_known) {
  return {.to = {.address = to, .must_be_known = to_known},
          .from = {.address = from, .must_be_known = from_known},
          .width = bytes};
}

Address address_of(const void* host) { return reinterpret_cast<Address>(host); }

// One side of CUDA's structures. Arrays are not emulated.
Side side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
             std::size_t pitch, std::size_t height, std::size_t width, std::size_t rows, std::size_t slices) {
  require(type != CU_MEMORYTYPE_ARRAY, CUDA_ERROR_NOT_SUPPORTED);
  require(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED,
          CUDA_ERROR_INVALID_VALUE);
  if (pitch == 0) pitch = x + width;
  require(rows <= 1 || pitch >= x + width, CUDA_ERROR_INVALID_VALUE);
  require(slices <= 1 || height == 0 || height >= y + rows, CUDA_ERROR_INVALID_VALUE);
  Side side;
  side.pitch = pitch;
  side.slice = pitch * (height == 0 ? y + rows : height);
  side.address = (type == CU_MEMORYTYPE_HOST ? address_of(host) : device) + z * side.slice + y * pitch + x;
  side.must_be_known = type == CU_MEMORYTYPE_DEVICE;
  return side;
}

Box box_of(const CUDA_MEMCPY2D& copy) {
  Box box;
  box.width = copy.WidthInBytes;
  box.height = copy.Height;
  box.from = side_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY, 0, copy.srcPitch, 0,
                     copy.WidthInBytes, copy.Height, 1);
  box.to = side_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY, 0, copy.dstPitch, 0,
                   copy.WidthInBytes, copy.Height, 1);
  return box;
}

template <class Structure>  // CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name these alike
Box box_of_3d(const Structure& copy) {
  Box box;
  box.width = copy.WidthInBytes;
  box.height = copy.Height;
  box.depth = copy.Depth;
  box.from = side_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY, copy.srcZ,
                     copy.srcPitch, copy.srcHeight, copy.WidthInBytes, copy.Height, copy.Depth);
  box.to = side_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY, copy.dstZ,
                   copy.dstPitch, copy.dstHeight, copy.WidthInBytes, copy.Height, copy.Depth);
  return box;
}

template <class Unit>
void fill(CUdeviceptr pointer, std::size_t pitch, Unit value, std::size_t width, std::size_t height, CUstream handle,
          Call call) {
  const auto stream = resolve(handle);
  if (width == 0 || height == 0) return;
  if (height == 1) pitch = width * sizeof(Unit);
  require(pointer % sizeof(Unit) == 0 && pitch % sizeof(Unit) == 0 && pitch >= width * sizeof(Unit),
          CUDA_ERROR_INVALID_VALUE);
  memory().check(pointer, (height - 1) * pitch + width * sizeof(Unit), true);
  require(fills(stream->context, pointer), CUDA_ERROR_INVALID_VALUE);
  auto* const to = static_cast<unsigned char*>(memory().cpu(pointer));
  const Point done = submit(stream, CU_GRAPH_NODE_TYPE_MEMSET, [=](const Running&) {
    for (std::size_t y = 0; y < height; ++y) {
      std::fill_n(reinterpret_cast<Unit*>(to + y * pitch), width, value);  // aligned, as was checked
    }
  });
  if (call == Call::synchronous && !on_gpu(pointer)) done.wait();
}

CUresult copy_entry(const char* name, CUstream stream, Call call, const Box& box) {
  return enter(name, call == Call::synchronous ? unsafe_in_capture : plain, [&] { copy(box, resolve(stream), call); });
}

#if CUDA_VERSION >= 12080
using BatchAttributes = CUmemcpyAttributes;
#else
using BatchAttributes = void;  // as far as they are looked at
#endif

// No order among the copies is promised, so that in their own order is as good as any.
CUresult batch_entry(const char* name, const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* bytes,
                     std::size_t count, const void* attributes, const std::size_t* first_of_attributes,
                     std::size_t attribute_count, std::size_t* failed, CUstream handle) {
  return enter(name, plain, [&] {
    require(to != nullptr && from != nullptr && bytes != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
    require(attributes != nullptr && first_of_attributes != nullptr && attribute_count != 0 &&
                attribute_count <= count && first_of_attributes[0] == 0,
            CUDA_ERROR_INVALID_VALUE);
    require(handle != nullptr && handle != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    for (std::size_t i = 0; i < count; ++i) {
      if (failed != nullptr) *failed = i;
      require(bytes[i] != 0, CUDA_ERROR_INVALID_VALUE);
      copy(line(to[i], from[i], bytes[i], false, false), stream, Call::asynchronous);
    }
  });
}

}  // namespace

// Each synchronous entry and its _ptds twin, which differ in the default stream.
#define CROSSLANE_SYNCHRONOUS(name, parameters, box)                                               \
  CUresult name parameters { return copy_entry(#name, CU_STREAM_LEGACY, Call::synchronous, box); } \
  CUresult name##_ptds parameters { return copy_entry(#name, CU_STREAM_PER_THREAD, Call::synchronous, box); }
// A box that comes from a structure, which may be null or malformed: made inside the entry.
#define CROSSLANE_STRUCTURED(name, type, stream, call, make)                  \
  enter(#name, (call) == Call::synchronous ? unsafe_in_capture : plain, [&] { \
    require(structure != nullptr, CUDA_ERROR_INVALID_VALUE);                  \
    copy(make(*structure), resolve(stream), call);                            \
  })
#define CROSSLANE_STRUCTURED_PAIR(name, type, make)                                         \
  CUresult name(const type* structure) {                                                    \
    return CROSSLANE_STRUCTURED(name, type, CU_STREAM_LEGACY, Call::synchronous, make);     \
  }                                                                                         \
  CUresult name##_ptds(const type* structure) {                                             \
    return CROSSLANE_STRUCTURED(name, type, CU_STREAM_PER_THREAD, Call::synchronous, make); \
  }
#define CROSSLANE_STRUCTURED_ASYNC(name, type, make)                           \
  CUresult name(const type* structure, CUstream stream) {                      \
    return CROSSLANE_STRUCTURED(name, type, stream, Call::asynchronous, make); \
  }                                                                            \
  CUresult name##_ptsz(const type* structure, CUstream stream) { return on_per_thread(name, structure, stream); }
// Fills: synchronous, its _ptds twin, asynchronous and its _ptsz twin.
#define CROSSLANE_FILL(name, version, Unit)                                                                           \
  CUresult cuMemset##name##version(CUdeviceptr to, Unit value, size_t count) {                                        \
    return enter("cuMemset" #name #version, unsafe_in_capture,                                                        \
                 [&] { fill(to, 0, value, count, 1, CU_STREAM_LEGACY, Call::synchronous); });                         \
  }                                                                                                                   \
  CUresult cuMemset##name##version##_ptds(CUdeviceptr to, Unit value, size_t count) {                                 \
    return enter("cuMemset" #name #version, unsafe_in_capture,                                                        \
                 [&] { fill(to, 0, value, count, 1, CU_STREAM_PER_THREAD, Call::synchronous); });                     \
  }                                                                                                                   \
  CUresult cuMemset##name##Async(CUdeviceptr to, Unit value, size_t count, CUstream stream) {                         \
    return enter("cuMemset" #name "Async", plain, [&] { fill(to, 0, value, count, 1, stream, Call::asynchronous); }); \
  }                                                                                                                   \
  CUresult cuMemset##name##Async_ptsz(CUdeviceptr to, Unit value, size_t count, CUstream stream) {                    \
    return on_per_thread(cuMemset##name##Async, to, value, count, stream);                                            \
  }
#define CROSSLANE_FILL_2D(name, Unit)                                                                          \
  CUresult cuMemsetD2##name##_v2(CUdeviceptr to, size_t pitch, Unit value, size_t width, size_t height) {      \
    return enter("cuMemsetD2" #name "_v2", unsafe_in_capture,                                                  \
                 [&] { fill(to, pitch, value, width, height, CU_STREAM_LEGACY, Call::synchronous); });         \
  }                                                                                                            \
  CUresult cuMemsetD2##name##_v2_ptds(CUdeviceptr to, size_t pitch, Unit value, size_t width, size_t height) { \
    return enter("cuMemsetD2" #name "_v2", unsafe_in_capture,                                                  \
                 [&] { fill(to, pitch, value, width, height, CU_STREAM_PER_THREAD, Call::synchronous); });     \
  }                                                                                                            \
  CUresult cuMemsetD2##name##Async(CUdeviceptr to, size_t pitch, Unit value, size_t width, size_t height,      \
                                   CUstream stream) {                                                          \
    return enter("cuMemsetD2" #name "Async", plain,                                                            \
                 [&] { fill(to, pitch, value, width, height, stream, Call::asynchronous); });                  \
  }                                                                                                            \
  CUresult cuMemsetD2##name##Async_ptsz(CUdeviceptr to, size_t pitch, Unit value, size_t width, size_t height, \
                                        CUstream stream) {                                                     \
    return on_per_thread(cuMemsetD2##name##Async, to, pitch, value, width, height, stream);                    \
  }

extern "C" {

CROSSLANE_SYNCHRONOUS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), line(to, from, bytes, false, false))
CROSSLANE_SYNCHRONOUS(cuMemcpyPeer, (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
                      line(to, from, bytes, true, true))
CROSSLANE_SYNCHRONOUS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes),
                      line(to, address_of(from), bytes, true, false))
CROSSLANE_SYNCHRONOUS(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes),
                      line(address_of(to), from, bytes, false, true))
CROSSLANE_SYNCHRONOUS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
                      line(to, from, bytes, true, true))

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_entry("cuMemcpyAsync", stream, Call::asynchronous, line(to, from, bytes, false, false));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return copy_entry("cuMemcpyPeerAsync", stream, Call::asynchronous, line(to, from, bytes, true, true));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_entry("cuMemcpyHtoDAsync_v2", stream, Call::asynchronous, line(to, address_of(from), bytes, true, false));
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_entry("cuMemcpyDtoHAsync_v2", stream, Call::asynchronous, line(address_of(to), from, bytes, false, true));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_entry("cuMemcpyDtoDAsync_v2", stream, Call::asynchronous, line(to, from, bytes, true, true));
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return on_per_thread(cuMemcpyAsync, to, from, bytes, stream);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                size_t bytes, CUstream stream) {
  return on_per_thread(cuMemcpyPeerAsync, to, to_context, from, from_context, bytes, stream);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return on_per_thread(cuMemcpyHtoDAsync_v2, to, from, bytes, stream);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return on_per_thread(cuMemcpyDtoHAsync_v2, to, from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return on_per_thread(cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
}

// CUDA 12.8's, which tells the copy that failed, and CUDA 13's.
#undef cuMemcpyBatchAsync
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            BatchAttributes* attributes, size_t* firsts, size_t attribute_count, size_t* failed,
                            CUstream stream) {
  return batch_entry("cuMemcpyBatchAsync", to, from, bytes, count, attributes, firsts, attribute_count, failed, stream);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               BatchAttributes* attributes, size_t* firsts, size_t attribute_count, CUstream stream) {
  return batch_entry("cuMemcpyBatchAsync_v2", to, from, bytes, count, attributes, firsts, attribute_count, nullptr,
                     stream);
}
CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                 BatchAttributes* attributes, size_t* firsts, size_t attribute_count, size_t* failed,
                                 CUstream stream) {
  return on_per_thread(cuMemcpyBatchAsync, to, from, bytes, count, attributes, firsts, attribute_count, failed, stream);
}
CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                    BatchAttributes* attributes, size_t* firsts, size_t attribute_count,
                                    CUstream stream) {
  return on_per_thread(cuMemcpyBatchAsync_v2, to, from, bytes, count, attributes, firsts, attribute_count, stream);
}

CROSSLANE_STRUCTURED_PAIR(cuMemcpy2D_v2, CUDA_MEMCPY2D, box_of)
CROSSLANE_STRUCTURED_PAIR(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, box_of)
CROSSLANE_STRUCTURED_PAIR(cuMemcpy3D_v2, CUDA_MEMCPY3D, box_of_3d)
CROSSLANE_STRUCTURED_PAIR(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, box_of_3d)
CROSSLANE_STRUCTURED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, box_of)
CROSSLANE_STRUCTURED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, box_of_3d)
CROSSLANE_STRUCTURED_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, box_of_3d)

CROSSLANE_FILL(D8, _v2, unsigned char)
CROSSLANE_FILL(D16, _v2, unsigned short)
CROSSLANE_FILL(D32, _v2, unsigned int)
CROSSLANE_FILL_2D(D8, unsigned char)
CROSSLANE_FILL_2D(D16, unsigned short)
CROSSLANE_FILL_2D(D32, unsigned int)

}  // extern "C"
