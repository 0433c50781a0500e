// See copy.h.
#include "gpu/copy.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

namespace crosslane::gpu {

void copy_async(void* destination, const void* source, std::size_t bytes, StreamView stream) {
  if (bytes == 0) return;
  const Driver& driver = stream.driver();
  const CUresult result = driver.memcpy_async(reinterpret_cast<CUdeviceptr>(destination),
                                              reinterpret_cast<CUdeviceptr>(source), bytes, stream.handle());
  if (result != CUDA_SUCCESS) [[unlikely]] {
    check(driver, result, fmt::format("cuMemcpyAsync of {} bytes from {} to {}", bytes, source, destination));
  }
}

bool store_async(void* destination, const std::byte* source, std::size_t bytes, StreamView stream) {
  constexpr std::size_t word = sizeof(std::uint32_t), pair = sizeof(std::uint64_t);
  const auto to = reinterpret_cast<CUdeviceptr>(destination);
  if (bytes == 0 || bytes > most_stored || bytes % word != 0 || to % word != 0) return false;
  std::array<CUstreamBatchMemOpParams, most_stored / word> stores{};
  unsigned count = 0;
  for (std::size_t at = 0; at < bytes;) {
    auto& store = stores[count++].writeValue;
    store.address = to + at;
    store.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // no other is allowed here
    if (store.address % pair == 0 && bytes - at >= pair) {
      store.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      std::memcpy(&store.value64, source + at, pair);
      at += pair;
    } else {
      store.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      std::memcpy(&store.value, source + at, word);
      at += word;
    }
  }
  return stream.driver().stream_batch_mem_op(stream.handle(), count, stores.data(), 0) == CUDA_SUCCESS;
}

void copy_2d_async(void* destination, const void* source, const Rows& rows, StreamView stream) {
  if (rows.count == 0 || rows.row_bytes == 0) return;
  if (rows.count == 1 || (rows.row_bytes == rows.destination_pitch && rows.row_bytes == rows.source_pitch)) {
    return copy_async(destination, source, rows.row_bytes * rows.count, stream);
  }
  if (rows.destination_pitch < rows.row_bytes || rows.source_pitch < rows.row_bytes) {
    throw base::Error(base::ErrorClass::argument,
                      "rows of {} bytes overlap at pitches {} (to) and {} (from): give pitches of at least a row",
                      rows.row_bytes, rows.destination_pitch, rows.source_pitch);
  }
  constexpr std::size_t max_pitch = std::numeric_limits<int>::max();
  const Driver& driver = stream.driver();
  if (rows.destination_pitch > max_pitch || rows.source_pitch > max_pitch) {
    for (std::size_t row = 0; row < rows.count; ++row) {
      copy_async(static_cast<std::byte*>(destination) + row * rows.destination_pitch,
                 static_cast<const std::byte*>(source) + row * rows.source_pitch, rows.row_bytes, stream);
    }
    return;
  }
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;  // the driver looks at the addresses
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(source);
  copy.srcPitch = rows.source_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(destination);
  copy.dstPitch = rows.destination_pitch;
  copy.WidthInBytes = rows.row_bytes;
  copy.Height = rows.count;
  const CUresult result = driver.memcpy_2d_async(&copy, stream.handle());
  if (result != CUDA_SUCCESS) [[unlikely]] {
    check(driver, result,
          fmt::format("cuMemcpy2DAsync of {} rows of {} bytes from {} to {}", rows.count, rows.row_bytes, source,
                      destination));
  }
}

void fill_async(void* destination, unsigned char value, std::size_t bytes, StreamView stream) {
  if (bytes == 0) return;
  const Driver& driver = stream.driver();
  check(driver, driver.memset_d8_async(reinterpret_cast<CUdeviceptr>(destination), value, bytes, stream.handle()),
        "cuMemsetD8Async");
}

}  // namespace crosslane::gpu
