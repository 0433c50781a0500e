// Entries: virtual memory management. Physical memory is a memfd of its own, so that its descriptor is what is exported.
#include "gpu/emulated/memory.h"
#include "gpu/emulated/stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

using namespace crosslane::gpu::emulated;
using Kind = Range::Kind;

namespace {

// Physical memory: lives while a handle or a mapping refers to it.
struct Physical {
  int file = -1;
  std::size_t bytes = 0;
  Device* device = nullptr;
  bool counted = false;  // against the device's memory: imported memory is its exporter's
  bool exportable = false;
  ~Physical() {
    if (file >= 0) close(file);
    if (counted) device->used -= bytes;
  }
};

struct Mapped {
  std::size_t bytes;
  std::shared_ptr<Physical> physical;
};

struct Virtual {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Physical>, unsigned>> handles;  // and references
  CUmemGenericAllocationHandle next = 1;
  std::map<Address, std::size_t> reserved;
  std::map<Address, Mapped> mapped;

  std::shared_ptr<Physical>& physical(CUmemGenericAllocationHandle handle) {
    const auto found = handles.find(handle);
    require(found != handles.end(), CUDA_ERROR_INVALID_VALUE);
    return found->second.first;
  }
  CUmemGenericAllocationHandle add(std::shared_ptr<Physical> physical_memory) {
    const auto handle = next++;
    handles.emplace(handle, std::pair(std::move(physical_memory), 1U));
    return handle;
  }
};

Virtual& all() {
  static auto& instance = *new Virtual();
  return instance;
}

Device& device_of(const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
  return state().device(location.id);
}

// The mappings that make up exactly [begin, begin + bytes).
std::vector<Address> mappings_of(Address begin, std::size_t bytes) {
  std::vector<Address> found;
  Address at = begin;
  while (at < begin + bytes) {
    const auto mapping = all().mapped.find(at);
    require(mapping != all().mapped.end(), CUDA_ERROR_INVALID_VALUE);
    found.push_back(at);
    at += mapping->second.bytes;
  }
  require(at == begin + bytes, CUDA_ERROR_INVALID_VALUE);
  return found;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* property,
                                       CUmemAllocationGranularity_flags) {
  return enter("cuMemGetAllocationGranularity", plain, [&] {
    require(bytes != nullptr && property != nullptr, CUDA_ERROR_INVALID_VALUE);
    device_of(property->location);
    *bytes = granule;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  return enter("cuMemAddressReserve", allocates | unsafe_in_capture, [&] {
    require(pointer != nullptr && bytes != 0 && bytes % granule == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    require((alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
    *pointer = memory().reserve(bytes, std::max(alignment, granule), wanted);
    const std::lock_guard lock(all().mutex);
    all().reserved[*pointer] = bytes;
  });
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  return enter("cuMemAddressFree", allocates | unsafe_in_capture, [&] {
    const std::lock_guard lock(all().mutex);
    const auto found = all().reserved.find(pointer);
    require(found != all().reserved.end() && found->second == bytes, CUDA_ERROR_INVALID_VALUE);
    const auto inside = all().mapped.lower_bound(pointer);
    require(inside == all().mapped.end() || inside->first >= pointer + bytes, CUDA_ERROR_INVALID_VALUE);
    all().reserved.erase(found);
    memory().unreserve(pointer, bytes);
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* property,
                     unsigned long long flags) {
  return enter("cuMemCreate", allocates | unsafe_in_capture, [&] {
    require(handle != nullptr && property != nullptr && bytes != 0 && bytes % granule == 0 && flags == 0,
            CUDA_ERROR_INVALID_VALUE);
    require(property->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    require(property->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                property->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            CUDA_ERROR_NOT_SUPPORTED);
    Device& device = device_of(property->location);
    auto physical = std::make_shared<Physical>();
    physical->device = &device;
    physical->bytes = bytes;
    physical->exportable = property->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (device.used.fetch_add(bytes) + bytes > device.memory) {
      device.used -= bytes;
      throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    physical->counted = true;
    physical->file = memfd_create("crosslane-emulated-physical", MFD_CLOEXEC);
    require(physical->file >= 0 && ftruncate(physical->file, static_cast<off_t>(bytes)) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    const std::lock_guard lock(all().mutex);
    *handle = all().add(std::move(physical));
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return enter("cuMemRelease", allocates | unsafe_in_capture, [&] {
    const std::lock_guard lock(all().mutex);
    all().physical(handle);
    if (auto& entry = all().handles[handle]; --entry.second == 0) all().handles.erase(handle);
  });
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return enter("cuMemMap", allocates | unsafe_in_capture, [&] {
    require(bytes != 0 && bytes % granule == 0 && pointer % granule == 0 && offset == 0 && flags == 0,
            CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(all().mutex);
    const auto physical = all().physical(handle);
    require(bytes <= physical->bytes, CUDA_ERROR_INVALID_VALUE);
    auto place = all().reserved.upper_bound(pointer);
    require(place != all().reserved.begin(), CUDA_ERROR_INVALID_VALUE);
    --place;
    require(pointer + bytes <= place->first + place->second, CUDA_ERROR_INVALID_VALUE);
    const auto next = all().mapped.upper_bound(pointer);
    require(next == all().mapped.end() || next->first >= pointer + bytes, CUDA_ERROR_INVALID_VALUE);
    if (next != all().mapped.begin()) {
      const auto& previous = *std::prev(next);
      require(previous.first + previous.second.bytes <= pointer, CUDA_ERROR_INVALID_VALUE);
    }
    // Not readable until cuMemSetAccess says so.
    memory().map({.base = pointer,
                  .size = bytes,
                  .kind = Kind::mapped,
                  .device = physical->device,
                  .context = nullptr,
                  .buffer_id = memory().next_buffer_id(),
                  .writable = false,
                  .readable = false},
                 physical->file, 0);
    all().mapped.emplace(pointer, Mapped{bytes, physical});
  });
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  return enter("cuMemUnmap", allocates | unsafe_in_capture, [&] {
    for (const auto& device : state().devices) synchronize_device(*device);
    const std::lock_guard lock(all().mutex);
    for (const Address mapping : mappings_of(pointer, bytes)) {
      memory().unmap(mapping);
      all().mapped.erase(mapping);
    }
  });
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return enter("cuMemSetAccess", allocates | unsafe_in_capture, [&] {
    require(access != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(all().mutex);
    const auto mappings = mappings_of(pointer, bytes);
    bool readable = false, writable = false;
    for (std::size_t at = 0; at < count; ++at) {
      Device& device = device_of(access[at].location);
      for (const Address mapping : mappings) {
        require(state().can_access(device, *all().mapped.at(mapping).physical->device),
                CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
      }
      // One mapping serves all GPUs here: it allows what any of them may do.
      readable |= access[at].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
      writable |= access[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    memory().protect(pointer, bytes, readable, writable);
    for (const Address mapping : mappings) {
      memory().change(mapping, [&](Range& range) {
        range.readable = readable;
        range.writable = writable;
      });
    }
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  return enter("cuMemGetAccess", plain, [&] {
    require(flags != nullptr && location != nullptr, CUDA_ERROR_INVALID_VALUE);
    device_of(*location);
    const auto range = memory().find(pointer);
    require(range && range->kind == Kind::mapped, CUDA_ERROR_INVALID_VALUE);
    *flags = range->writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : range->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return enter("cuMemRetainAllocationHandle", plain, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto range = memory().find(reinterpret_cast<Address>(address));
    require(range && range->kind == Kind::mapped, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(all().mutex);
    const auto physical = all().mapped.at(range->base).physical;
    for (auto& [number, entry] : all().handles) {
      if (entry.first == physical) {
        ++entry.second;
        *handle = number;
        return;
      }
    }
    *handle = all().add(physical);
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* property, CUmemGenericAllocationHandle handle) {
  return enter("cuMemGetAllocationPropertiesFromHandle", plain, [&] {
    require(property != nullptr, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(all().mutex);
    const auto& physical = all().physical(handle);
    *property = {};
    property->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property->requestedHandleTypes =
        physical->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    property->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = physical->device->ordinal};
  });
}

CUresult cuMemExportToShareableHandle(void* result, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  return enter("cuMemExportToShareableHandle", unsafe_in_capture, [&] {
    require(result != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    const std::lock_guard lock(all().mutex);
    const auto& physical = all().physical(handle);
    require(physical->exportable, CUDA_ERROR_INVALID_VALUE);
    const int copy = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    require(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    *static_cast<int*>(result) = copy;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* given,
                                        CUmemAllocationHandleType type) {
  return enter("cuMemImportFromShareableHandle", allocates | unsafe_in_capture, [&] {
    require(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    const int file = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
    struct stat about{};
    require(fstat(file, &about) == 0 && about.st_size > 0 && static_cast<std::size_t>(about.st_size) % granule == 0,
            CUDA_ERROR_INVALID_VALUE);
    auto physical = std::make_shared<Physical>();
    // Which GPU it lies on does not matter to the mapping; the current one stands for it.
    physical->device = context_stack().empty() ? state().devices.front().get() : current().device;
    physical->bytes = static_cast<std::size_t>(about.st_size);
    physical->exportable = true;
    physical->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    require(physical->file >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    const std::lock_guard lock(all().mutex);
    *handle = all().add(std::move(physical));
  });
}

}  // extern "C"
