// See properties.h. Fields by their distance from the structure's begin (driver_types.h of CUDA 12.8 and 13.0), since one library has both.
#include "gpu/emulated/runtime/properties.h"

#include <array>
#include <cstring>

namespace crosslane::gpu::emulated::runtime {
namespace {

struct Field {
  CUdevice_attribute attribute;
  std::size_t in_12, in_13;
  bool wide;  // a size_t, not an int
};

constexpr std::size_t bytes_in_12 = 1032, bytes_in_13 = 1008;
constexpr std::size_t name_bytes = 256, uuid_at = 256, total_memory_at = 288;

constexpr std::array fields{
    Field{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 296, 296, true},
    Field{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 304, 304, false},
    Field{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 308, 308, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 312, 312, true},
    Field{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 320, 320, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 324, 324, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 328, 328, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 332, 332, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 336, 336, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 340, 340, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 344, 344, false},
    Field{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 352, 352, true},
    Field{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 360, 360, false},
    Field{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 364, 364, false},
    Field{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 388, 384, false},
    Field{CU_DEVICE_ATTRIBUTE_INTEGRATED, 396, 388, false},
    Field{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 400, 392, false},
    Field{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 576, 560, false},
    Field{CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 584, 568, false},
    Field{CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 588, 572, false},
    Field{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 592, 576, false},
    Field{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 600, 584, false},
    Field{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 604, 588, false},
    Field{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 612, 592, false},
    Field{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 616, 596, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 624, 604, false},
    Field{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 628, 608, false},
    Field{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 640, 624, true},
    Field{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 648, 632, false},
    Field{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 652, 636, false},
    Field{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 664, 648, false},
    Field{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 672, 652, false},
    Field{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 676, 656, false},
    Field{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 684, 664, false},
    Field{CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 688, 668, false},
};

}  // namespace

Error fill(void* properties, Release release, int device) noexcept {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool older = release == Release::cuda_12;
  auto* const begin = static_cast<char*>(properties);
  std::size_t memory = 0;
  if (const Error error = cuDeviceTotalMem(&memory, device); error != CUDA_SUCCESS) return error;
  std::memset(begin, 0, older ? bytes_in_12 : bytes_in_13);
  std::memcpy(begin + total_memory_at, &memory, sizeof memory);
  if (const Error error = cuDeviceGetName(begin, name_bytes, device); error != CUDA_SUCCESS) return error;
  CUuuid uuid{};
  if (cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS) std::memcpy(begin + uuid_at, &uuid, sizeof uuid);
  for (const Field& field : fields) {
    int value = 0;
    if (cuDeviceGetAttribute(&value, field.attribute, device) != CUDA_SUCCESS) continue;
    const std::size_t at = older ? field.in_12 : field.in_13, wide = static_cast<std::size_t>(value);
    if (field.wide) {
      std::memcpy(begin + at, &wide, sizeof wide);
    } else {
      std::memcpy(begin + at, &value, sizeof value);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace crosslane::gpu::emulated::runtime
