// See copy.h.
#include "gpu/copy.h"

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
