// Entries: memory and events that cross processes. A handle names the exporter's unnamed file by its number in that
// process, and is opened through /proc: nothing has a name, so nothing is left when a process is killed.
// The exporter's start time and the allocation's identity tell a handle that outlived what it named.
#include "gpu/emulated/event.h"
#include "gpu/emulated/memory.h"
#include "gpu/emulated/stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>

using namespace crosslane::gpu::emulated;
using Kind = Range::Kind;

namespace {

struct Handle {
  char magic[4];
  std::int32_t process;
  std::uint64_t started;  // clock ticks since boot, so that a number used again is noticed
  std::int32_t file;
  std::int32_t physical;  // GPU of the node
  std::uint64_t offset, bytes, identity;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle) && sizeof(Handle) <= sizeof(CUipcEventHandle));
constexpr char memory_magic[4] = {'x', 'l', 'm', '1'};
constexpr char event_magic[4] = {'x', 'l', 'e', '1'};

// Field 22 of /proc/<pid>/stat; 0 if there is no such process. Fields are counted after the name, which may hold spaces.
std::uint64_t start_time(int process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[1024];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

struct OpenFile {
  int number = -1;
  explicit OpenFile(const Handle& handle) {
    if (start_time(handle.process) != handle.started) throw Failure{CUDA_ERROR_INVALID_VALUE};
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
    number = open(path, O_RDWR | O_CLOEXEC);
    if (number >= 0) return;
    static auto& once = *new std::atomic<bool>(false);
    say_once(once, std::string("cannot open another process's memory (") + path + ": " + std::strerror(errno) +
                       "); both must run as one user in one PID namespace");
    throw Failure{CUDA_ERROR_INVALID_VALUE};
  }
  ~OpenFile() { close(number); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

// Opened memory handles: opening one twice in a context gives the same address, counted. What its owner allocated where
// memory lies that was freed, but is still open here, cannot be opened.
struct Opened {
  Address address;
  std::size_t bytes;
  unsigned count;
};
using Key = std::tuple<int, std::uint64_t, int, std::uint64_t, std::uint64_t, CUcontext>;
struct OpenedHandles {
  std::mutex mutex;
  std::map<Key, Opened> by_key;
};
OpenedHandles& opened() {
  static auto& instance = *new OpenedHandles();
  return instance;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* result, CUdeviceptr pointer) {
  return enter("cuIpcGetMemHandle", unsafe_in_capture, [&] {
    require(result != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto range = memory().find(pointer);
    // Memory of pools, of virtual memory management, managed or opened itself cannot be exported so.
    require(range && range->kind == Kind::device, CUDA_ERROR_INVALID_VALUE);
    const Memory::Place place = memory().place(*range);
    Handle handle{};
    std::memcpy(handle.magic, memory_magic, sizeof handle.magic);
    handle.process = getpid();
    handle.started = start_time(getpid());
    handle.file = place.file;
    handle.physical = range->device->physical;
    handle.offset = place.offset;
    handle.bytes = place.bytes;
    handle.identity = place.buffer_id;
    std::memset(result, 0, sizeof *result);
    std::memcpy(result, &handle, sizeof handle);
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle given, unsigned flags) {
  return enter("cuIpcOpenMemHandle_v2", allocates | unsafe_in_capture, [&] {
    require(pointer != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    Handle handle{};
    std::memcpy(&handle, &given, sizeof handle);
    require(std::memcmp(handle.magic, memory_magic, sizeof handle.magic) == 0, CUDA_ERROR_INVALID_VALUE);
    CUctx_st& context = current();
    require(handle.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    Device* owner = nullptr;
    for (const auto& device : state().devices) {
      if (device->physical == handle.physical) owner = device.get();
    }
    require(owner != nullptr, CUDA_ERROR_INVALID_DEVICE);  // hidden by CUDA_VISIBLE_DEVICES
    require(state().can_access(*context.device, *owner), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);

    OpenedHandles& all = opened();
    const std::lock_guard lock(all.mutex);
    const Key key{handle.process, handle.started, handle.file, handle.offset, handle.identity, &context};
    if (const auto found = all.by_key.find(key); found != all.by_key.end()) {
      ++found->second.count;
      *pointer = found->second.address;
      return;
    }
    for (const auto& [other, mapping] : all.by_key) {
      const bool same_memory =
          std::tuple(std::get<0>(other), std::get<1>(other), std::get<2>(other), std::get<5>(other)) ==
          std::tuple(handle.process, handle.started, handle.file, &context);
      const std::uint64_t begin = std::get<3>(other);
      require(!same_memory || handle.offset + handle.bytes <= begin || begin + mapping.bytes <= handle.offset,
              CUDA_ERROR_ALREADY_MAPPED);
    }
    const OpenFile file(handle);
    const std::size_t pages = round_up(handle.bytes, page);
    const Address address = memory().reserve(pages + page, handle.bytes >= granule ? granule : page);
    std::uint64_t identity = 0;
    try {
      memory().map({.base = address,
                    .size = handle.bytes,
                    .kind = Kind::imported,
                    .device = owner,
                    .context = &context,
                    .buffer_id = memory().next_buffer_id()},
                   file.number, handle.offset);
    } catch (...) {
      memory().unreserve(address, pages + page);
      throw;
    }
    // After mapping: what is freed from here on was live when we mapped it.
    if (pread(file.number, &identity, sizeof identity, static_cast<off_t>(memory().identity_offset(handle.offset))) !=
            sizeof identity ||
        identity != handle.identity) {
      memory().free(address, {Kind::imported});
      throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    all.by_key.emplace(key, Opened{address, handle.bytes, 1});
    *pointer = address;
  });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  return enter("cuIpcCloseMemHandle", allocates | unsafe_in_capture, [&] {
    const auto range = memory().find_base(pointer);
    require(range && range->kind == Kind::imported, CUDA_ERROR_INVALID_VALUE);
    synchronize(*range->context);
    OpenedHandles& all = opened();
    const std::lock_guard lock(all.mutex);
    for (auto at = all.by_key.begin(); at != all.by_key.end(); ++at) {
      if (at->second.address != pointer) continue;
      if (--at->second.count > 0) return;
      all.by_key.erase(at);
      break;
    }
    memory().free(pointer, {Kind::imported});
  });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* result, CUevent event_handle) {
  return enter("cuIpcGetEventHandle", unsafe_in_capture, [&] {
    require(result != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto event = resolve(event_handle);
    require(event->shared && event->shared_slot >= 0, CUDA_ERROR_INVALID_HANDLE);
    Handle handle{};
    std::memcpy(handle.magic, event_magic, sizeof handle.magic);
    handle.process = getpid();
    handle.started = start_time(getpid());
    handle.file = SharedEvents::file();
    handle.offset = static_cast<std::uint64_t>(event->shared_slot) * sizeof(SharedEvent);
    handle.bytes = sizeof(SharedEvent);
    std::memset(result, 0, sizeof *result);
    std::memcpy(result, &handle, sizeof handle);
  });
}

CUresult cuIpcOpenEventHandle(CUevent* result, CUipcEventHandle given) {
  return enter("cuIpcOpenEventHandle", allocates | unsafe_in_capture, [&] {
    require(result != nullptr, CUDA_ERROR_INVALID_VALUE);
    Handle handle{};
    std::memcpy(&handle, &given, sizeof handle);
    require(std::memcmp(handle.magic, event_magic, sizeof handle.magic) == 0, CUDA_ERROR_INVALID_VALUE);
    CUctx_st& context = current();
    require(handle.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    const OpenFile file(handle);
    const std::size_t first = handle.offset / page * page;
    void* const mapped =
        mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, static_cast<off_t>(first));
    require(mapped != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    auto event = std::make_shared<CUevent_st>();
    event->context = &context;
    event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    event->shared = {reinterpret_cast<SharedEvent*>(static_cast<unsigned char*>(mapped) + (handle.offset - first)),
                     [mapped](SharedEvent*) { munmap(mapped, page); }};
    *result = publish(std::move(event));
  });
}

}  // extern "C"
