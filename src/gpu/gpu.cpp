// See driver.h. Finding the driver library that the process has loaded, and asking it about addresses.
#include "gpu/driver.h"

#include "base/log.h"
#include "gpu/context.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

namespace crosslane::gpu {
namespace {

constexpr const char* driver_soname = "libcuda.so.1";

// Loads and unloads of objects so far: glibc hands both counters to the first callback, no object need be looked at.
std::uint64_t loaded_objects() noexcept {
  std::uint64_t changes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<std::uint64_t*>(result) = info->dlpi_adds + info->dlpi_subs;
        return 1;
      },
      &changes);
  return changes;
}

// Memory of cuMemMap, which alone has a handle to retain.
bool has_handle(const Driver& driver, std::uintptr_t address) noexcept {
  const OutsideCaptures outside(driver);
  CUmemGenericAllocationHandle handle{};
  return driver.mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(address)) == CUDA_SUCCESS &&
         driver.mem_release(handle) == CUDA_SUCCESS;
}

bool is_emulated(std::string_view setting) {
  constexpr std::string_view prefix = "emulated:";
  if (setting == "auto" || setting == "none") return false;
  int count = 0;
  const char* const end = setting.data() + setting.size();
  if (setting.starts_with(prefix)) {
    const auto [stop, error] = std::from_chars(setting.data() + prefix.size(), end, count);
    if (error == std::errc() && count > 0 && (stop == end || *stop == ':')) return true;
  }
  throw base::Error(base::ErrorClass::argument,
                    "CROSSLANE_GPU is '{}', allowed are auto, none and emulated:<GPUs a node>[:<topology file>]",
                    setting);
}

// The folder of the object that this code is in.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

void* load_emulated() {
  const std::string folder = own_folder();
  std::string reasons;
  for (const auto& path : {folder + "/emulated/" + driver_soname, folder + "/" + driver_soname,
                           folder + "/../lib/emulated/" + driver_soname}) {
    // Global, as the machine's driver would be for a program linked with it.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); library != nullptr) return library;
    reasons += std::string("\n  ") + dlerror();
  }
  throw base::Error(base::ErrorClass::argument,
                    "CROSSLANE_GPU asks for emulated GPUs, but the emulated driver does not load:{}\n"
                    "Install it beside this library, or start through `crosslane run`",
                    reasons);
}

}  // namespace

Gpu::Gpu(const base::Settings& settings) : enabled_(settings.gpu != "none") {
  if (!is_emulated(settings.gpu)) return;
  void* library = dlopen(driver_soname, RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) library = load_emulated();
  if (dlsym(library, "crosslane_emulated_forbid") == nullptr) {
    base::log(base::Topic::warning, "CROSSLANE_GPU={} but the program loaded the machine's own {}: real GPUs are used",
              settings.gpu, driver_soname);
  }
  library_.store(library, std::memory_order_release);
}

Gpu::~Gpu() = default;

bool Gpu::look_for_library() noexcept {
  const std::uint64_t changes = loaded_objects();
  if (changes == seen_objects_.load(std::memory_order_relaxed)) return false;
  void* const library = dlopen(driver_soname, RTLD_NOLOAD | RTLD_NOW);
  // Only now: a thread that sees the new count must have been able to find what was loaded before it.
  seen_objects_.store(changes, std::memory_order_relaxed);
  if (library == nullptr) {
    dlerror();  // the absence is no error that the application should find
    return false;
  }
  library_.store(library, std::memory_order_release);
  return true;
}

bool Gpu::may_appear() noexcept {
  if (!enabled_.load(std::memory_order_relaxed)) return false;
  // What NVIDIA's kernel driver makes: on Linux, and under Windows' subsystem for it.
  return present() || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

const Driver& Gpu::load_driver() {
  if (!present()) {
    throw base::Error(base::ErrorClass::unsupported, "no CUDA driver library ({}) is loaded in this process{}",
                      driver_soname, enabled_ ? "" : " as far as Crosslane may look: CROSSLANE_GPU is none");
  }
  const std::lock_guard lock(mutex_);
  if (!loaded_) {
    loaded_ = std::make_unique<Driver>(Driver::from_library(library_.load(std::memory_order_acquire)));
    ready_.store(loaded_.get(), std::memory_order_release);
  }
  return *loaded_;
}

bool Gpu::on_gpu(const void* address) noexcept { return inspect(address).on_gpu(); }

bool Gpu::recall(const Driver& table, CUdeviceptr address, PointerInfo& info) noexcept {
  {
    const std::lock_guard lock(known_mutex_);
    const auto all = known();
    const auto found = std::ranges::find_if(
        all, [&](const Known& one) { return address >= one.info.base && address - one.info.base < one.info.size; });
    if (found == all.end()) return false;
    info = found->info;
  }
  unsigned long long id = 0;
  if (table.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) == CUDA_SUCCESS && id == info.buffer_id)
    return true;
  const std::lock_guard lock(known_mutex_);
  for (Known& one : known())
    if (one.info.buffer_id == info.buffer_id) one = {};
  info = {};
  return false;
}

void Gpu::remember(const PointerInfo& info) noexcept {
  const std::lock_guard lock(known_mutex_);
  known_[next_known_++ % remembered] = {info, std::nullopt};
}

// Mappings belong to no context. Whether other memory is one costs several calls of the driver, so the answer is kept.
bool Gpu::is_mapped(const PointerInfo& info) noexcept {
  if (info.kind != PointerInfo::Kind::device || info.context != nullptr) return false;
  const auto find = [&]() -> Known* {
    const auto all = known();
    const auto found = std::ranges::find_if(
        all, [&](const Known& one) { return one.info.buffer_id == info.buffer_id && one.info.base == info.base; });
    return found == all.end() ? nullptr : &*found;
  };
  {
    const std::lock_guard lock(known_mutex_);
    if (const Known* const found = find(); found != nullptr && found->mapped) return *found->mapped;
  }
  const bool mapped = has_handle(driver(), info.base);
  const std::lock_guard lock(known_mutex_);
  if (Known* const found = find()) found->mapped = mapped;
  return mapped;
}

PointerInfo Gpu::inspect(const void* address) noexcept {
  PointerInfo info;
  if (!present()) return info;
  const Driver* table = nullptr;
  try {
    table = &driver();
  } catch (const base::Error& error) {
    // A driver that is too old to use: said once (no more searches), its pointers then take the CPU path.
    base::log(base::Topic::error, "{}", error.what());
    enabled_.store(false, std::memory_order_relaxed);
    library_.store(nullptr, std::memory_order_release);
    return info;
  }
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  if (recall(*table, pointer, info)) return info;
  CUmemorytype type{};
  // The one call that an ordinary host pointer costs: the driver answers INVALID_VALUE for what it does not know.
  if (table->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS) return info;

  unsigned managed = 0;
  int device = -1;
  unsigned long long buffer_id = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  CUcontext context = nullptr;
  std::array attributes{CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_BUFFER_ID,  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
  std::array<void*, attributes.size()> values{&managed, &device, &buffer_id, &start, &size, &context};
  if (table->pointer_get_attributes(attributes.size(), attributes.data(), values.data(), pointer) != CUDA_SUCCESS)
    return info;
  info.kind = managed != 0                   ? PointerInfo::Kind::managed
              : type == CU_MEMORYTYPE_DEVICE ? PointerInfo::Kind::device
                                             : PointerInfo::Kind::pinned;
  info.base = start;
  info.size = size;
  info.buffer_id = buffer_id;
  info.context = context;
  info.device = device;
  if (info.kind == PointerInfo::Kind::device) remember(info);
  return info;
}

std::size_t Gpu::contiguous_from(const void* address, std::size_t wanted) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::uintptr_t at = begin;
  // Copies run over the ends of cuMemMap's mappings alone; where other allocations, small ones mostly, meet, the driver refuses them.
  bool goes_on = true;
  while (at - begin < wanted && goes_on) {
    const PointerInfo info = inspect(reinterpret_cast<const void*>(at));
    if (!info.on_gpu() || info.base + info.size <= at) break;
    const bool mapped = is_mapped(info);
    if (at != begin && !mapped) break;
    at = info.base + info.size;
    goes_on = mapped;
  }
  return std::min<std::size_t>(at - begin, wanted);
}

bool Gpu::readable_by_cpu(const void* address) noexcept {
  // The kernel copies the set before it looks at `how`: EFAULT says unreadable, EINVAL readable. The set is 8 bytes,
  // so look at the 8-byte word that holds the address: it never reaches into the next page.
  const auto word = reinterpret_cast<std::uintptr_t>(address) & ~std::uintptr_t{7};
  if (word == 0) return false;  // to the kernel a null set is no set
  return syscall(SYS_rt_sigprocmask, -1, word, nullptr, std::size_t{8}) == 0 || errno != EFAULT;
}

bool Gpu::read_by_cpu(void* to, const void* from, std::size_t bytes) noexcept {
  const iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
  const auto got = syscall(SYS_process_vm_readv, getpid(), &local, 1UL, &remote, 1UL, 0UL);
  if (got >= 0) return static_cast<std::size_t>(got) == bytes;
  // Some containers forbid the call.
  if (errno == EFAULT || bytes == 0 || !readable_by_cpu(from) ||
      !readable_by_cpu(static_cast<const std::byte*>(from) + bytes - 1))
    return false;
  std::memcpy(to, from, bytes);
  return true;
}

}  // namespace crosslane::gpu
