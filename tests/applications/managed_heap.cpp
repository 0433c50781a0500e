// Preloaded into an application: what it allocates on its heap is managed GPU memory, so that a program which has never heard of GPUs passes
// GPU buffers to MPI, and still reads and writes them on the CPU. Its MPI, the driver and other libraries keep theirs.
//   MANAGED_HEAP_LEAST=<bytes>      smaller allocations stay where they are (default: 1)
//   MANAGED_HEAP_OF=<part,part...>  the same of libraries with such a part in their file's name, such as numpy
// It must not know MPI or Crosslane.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>

// glibc's own, which is there whatever is preloaded.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* pointer, std::size_t bytes);           // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* pointer);                                  // NOLINT(bugprone-reserved-identifier)
}

namespace {

// What the driver gives at least.
constexpr std::size_t alignment = 256;

// What a thread allocates meanwhile is our own, or the driver's.
// Where the loader makes room for such a variable at its first use it allocates and frees: by what is below, which would use it again.
thread_local bool busy __attribute__((tls_model("initial-exec"))) = false;
class Busy {
 public:
  Busy() { busy = true; }
  ~Busy() { busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

void require(const char* what, bool holds) {
  if (holds) return;
  std::fprintf(stderr, "managed_heap: %s failed\n", what);
  std::abort();
}

// The primary context of the rank's GPU, and the functions of the driver, which is the emulated one where that was preloaded.
class Gpu {
 public:
  Gpu() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    require("dlopen of libcuda.so.1", library != nullptr);
    load(library, "cuMemAllocManaged", allocate_);
    load(library, "cuMemFree_v2", free_);
    load(library, "cuCtxGetCurrent", get_current_);
    load(library, "cuCtxSetCurrent", set_current_);
    CUresult (*init)(unsigned) = nullptr;
    CUresult (*count)(int*) = nullptr;
    CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
    load(library, "cuInit", init);
    load(library, "cuDeviceGetCount", count);
    load(library, "cuDevicePrimaryCtxRetain", retain);
    int devices = 0;
    require("cuInit", init(0) == CUDA_SUCCESS);
    require("cuDeviceGetCount", count(&devices) == CUDA_SUCCESS && devices > 0);
    const char* rank = nullptr;
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"})
      if (rank == nullptr) rank = std::getenv(name);
    require("cuDevicePrimaryCtxRetain",
            retain(&context_, (rank != nullptr ? std::atoi(rank) : 0) % devices) == CUDA_SUCCESS);
  }

  /// Null where there is no more.
  void* allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    const Current current(*this);
    return allocate_(&address, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS ? reinterpret_cast<void*>(address)
                                                                            : nullptr;
  }
  /// Fails when the driver has ended, with all its memory.
  void free(void* pointer) {
    const Current current(*this);
    static_cast<void>(free_(reinterpret_cast<CUdeviceptr>(pointer)));
  }

 private:
  template <class Function>
  static void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    require(name, function != nullptr);
  }

  // The context, where the thread has none.
  class Current {
   public:
    explicit Current(const Gpu& gpu) : gpu_(gpu) {
      CUcontext now = nullptr;
      gpu_.get_current_(&now);
      set_ = now == nullptr && gpu_.set_current_(gpu_.context_) == CUDA_SUCCESS;
    }
    ~Current() {
      if (set_) gpu_.set_current_(nullptr);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Gpu& gpu_;
    bool set_;
  };

  CUcontext context_ = nullptr;
  CUresult (*allocate_)(CUdeviceptr*, std::size_t, unsigned) = nullptr;
  CUresult (*free_)(CUdeviceptr) = nullptr;
  CUresult (*get_current_)(CUcontext*) = nullptr;
  CUresult (*set_current_)(CUcontext) = nullptr;
};

class Heap {
 public:
  /// Null where the allocation is not for here.
  void* allocate(std::size_t bytes, const void* caller) {
    if (busy || bytes < least_ || !is_ours(caller)) return nullptr;
    const Busy guard;
    std::call_once(first_, [this] { gpu_ = new Gpu; });
    void* const made = gpu_->allocate(bytes);
    const std::lock_guard lock(mutex_);
    if (made != nullptr) sizes_[made] = bytes;
    return made;
  }
  /// Of what was allocated here; 0: it was not.
  std::size_t size(const void* pointer) {
    if (busy || !may_be_ours(pointer)) return 0;
    const Busy guard;
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(pointer);
    return found == sizes_.end() ? 0 : found->second;
  }
  bool free(void* pointer) {
    if (busy || !may_be_ours(pointer)) return false;
    const Busy guard;
    {
      const std::lock_guard lock(mutex_);
      if (sizes_.erase(pointer) == 0) return false;
    }
    gpu_->free(pointer);
    return true;
  }

 private:
  static bool may_be_ours(const void* pointer) {
    return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
  }
  // The program itself has no name.
  bool is_ours(const void* caller) const {
    dl_find_object found{};
    if (_dl_find_object(const_cast<void*>(caller), &found) != 0) return false;
    const std::string_view name = found.dlfo_link_map->l_name;
    if (name.empty()) return true;
    for (std::string_view rest = libraries_; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find(','));
      if (!part.empty() && name.find(part) != std::string_view::npos) return true;
      rest.remove_prefix(part.size() == rest.size() ? part.size() : part.size() + 1);
    }
    return false;
  }

  static const char* setting(const char* name, const char* otherwise) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : otherwise;
  }

  const std::size_t least_ = std::strtoull(setting("MANAGED_HEAP_LEAST", "1"), nullptr, 10);
  const std::string_view libraries_ = setting("MANAGED_HEAP_OF", "");
  std::once_flag first_;
  Gpu* gpu_ = nullptr;
  // Guards what follows; not held while the driver is called, which may wait for threads of its own that free something.
  std::mutex mutex_;
  std::unordered_map<const void*, std::size_t> sizes_;
};

// Never destroyed: others free until the very end.
Heap& heap() {
  alignas(Heap) static std::byte memory[sizeof(Heap)];
  static Heap* const made = new (memory) Heap;
  return *made;
}

void* aligned(std::size_t wanted, std::size_t bytes, const void* caller) {
  void* const made = wanted <= alignment ? heap().allocate(bytes, caller) : nullptr;
  return made != nullptr ? made : __libc_memalign(wanted, bytes);
}

void* made_new(std::size_t bytes, const void* caller) {
  void* made = heap().allocate(bytes, caller);
  if (made == nullptr) made = __libc_malloc(bytes != 0 ? bytes : 1);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED void* malloc(std::size_t bytes) {
  void* const made = heap().allocate(bytes, CALLER);
  return made != nullptr ? made : __libc_malloc(bytes);
}

EXPORTED void* calloc(std::size_t count, std::size_t each) {
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, each, &bytes))
    if (void* const made = heap().allocate(bytes, CALLER)) return std::memset(made, 0, bytes);
  return __libc_calloc(count, each);
}

EXPORTED void free(void* pointer) {
  if (!heap().free(pointer)) __libc_free(pointer);
}

EXPORTED void* realloc(void* pointer, std::size_t bytes) {
  const std::size_t ours = heap().size(pointer);
  void* made = heap().allocate(bytes, CALLER);
  if (ours == 0 && made == nullptr) return __libc_realloc(pointer, bytes);
  if (made == nullptr && bytes != 0) made = __libc_malloc(bytes);
  if (made == nullptr && bytes != 0) return nullptr;
  if (pointer != nullptr) {
    const std::size_t before = ours != 0 ? ours : malloc_usable_size(pointer);
    if (made != nullptr) std::memcpy(made, pointer, before < bytes ? before : bytes);
    free(pointer);
  }
  return made;
}

EXPORTED std::size_t malloc_usable_size(void* pointer) noexcept {
  if (const std::size_t ours = heap().size(pointer); ours != 0) return ours;
  static const auto theirs = reinterpret_cast<std::size_t (*)(void*)>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  return theirs(pointer);
}

EXPORTED void* memalign(std::size_t wanted, std::size_t bytes) { return aligned(wanted, bytes, CALLER); }
EXPORTED void* aligned_alloc(std::size_t wanted, std::size_t bytes) { return aligned(wanted, bytes, CALLER); }
EXPORTED int posix_memalign(void** made, std::size_t wanted, std::size_t bytes) {
  *made = aligned(wanted, bytes, CALLER);
  return *made != nullptr ? 0 : ENOMEM;
}

}  // extern "C"

// The C++ library's would call malloc themselves, for whoever calls them.
EXPORTED void* operator new(std::size_t bytes) { return made_new(bytes, CALLER); }
EXPORTED void* operator new[](std::size_t bytes) { return made_new(bytes, CALLER); }
EXPORTED void operator delete(void* pointer) noexcept { free(pointer); }
EXPORTED void operator delete[](void* pointer) noexcept { free(pointer); }
EXPORTED void operator delete(void* pointer, std::size_t /*bytes*/) noexcept { free(pointer); }
EXPORTED void operator delete[](void* pointer, std::size_t /*bytes*/) noexcept { free(pointer); }
