// Entries: cuGetProcAddress. The entries are looked up in this very library by the spelling that the asked-for CUDA
// version stands for.
#include "gpu/emulated/state.h"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <string>

using namespace crosslane::gpu::emulated;

namespace {

// Spellings that came later than CUDA 3.2's general _v2, newest first.
struct Spelling {
  const char* name;
  const char* symbol;
  int since;
};
constexpr std::array spellings{
    Spelling{"cuCtxCreate", "cuCtxCreate_v4", 12050},
    Spelling{"cuCtxCreate", "cuCtxCreate_v3", 11040},
    Spelling{"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    Spelling{"cuEventElapsedTime", "cuEventElapsedTime", 2000},
    Spelling{"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    Spelling{"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080},
    Spelling{"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    Spelling{"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    Spelling{"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    Spelling{"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
    Spelling{"cuGetProcAddress", "cuGetProcAddress", 11030},
};

void* own_library() {
  static void* const library = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&own_library), &info);
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
  }();
  return library;
}

void* find(const std::string& name, int version, bool per_thread) {
  bool listed = false;
  for (const Spelling& spelling : spellings) {
    if (name != spelling.name) continue;
    listed = true;
    if (version < spelling.since) continue;
    for (const char* suffix : {per_thread ? "_ptsz" : "", ""}) {
      if (void* function = dlsym(own_library(), (std::string(spelling.symbol) + suffix).c_str())) return function;
    }
  }
  if (listed) return nullptr;
  for (const char* newer : {"_v2", ""}) {
    if (per_thread) {
      for (const char* suffix : {"_ptsz", "_ptds"}) {
        if (void* function = dlsym(own_library(), (name + newer + suffix).c_str())) return function;
      }
    }
    if (void* function = dlsym(own_library(), (name + newer).c_str())) return function;
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return enter("cuGetProcAddress_v2", before_init, [&] {
    require(symbol != nullptr && function != nullptr, CUDA_ERROR_INVALID_VALUE);
    *function = find(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (status != nullptr)
      *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    require(*function != nullptr || status != nullptr, CUDA_ERROR_NOT_FOUND);
  });
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
