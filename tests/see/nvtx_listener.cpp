// Stands for the library that a profiler names in NVTX_INJECTION64_PATH: counts ranges by name. It must not know Crosslane.
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#define CROSSLANE_EXPORTED __attribute__((visibility("default")))

namespace {

struct Heard {
  std::mutex mutex;
  std::map<std::string, int> ranges;
  int open = 0;
};

Heard& heard() {
  static Heard all;
  return all;
}

int NVTX_API push(const char* name) {
  const std::lock_guard lock(heard().mutex);
  ++heard().ranges[name];
  return heard().open++;
}

int NVTX_API pop() {
  const std::lock_guard lock(heard().mutex);
  return --heard().open;
}

template <class Function>
NvtxFunctionPointer generic(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

/// What a test asks: how many ranges of that name began, and how many of all are still open.
extern "C" CROSSLANE_EXPORTED int nvtx_listener_ranges(const char* name) {
  const std::lock_guard lock(heard().mutex);
  return heard().ranges[name];
}
extern "C" CROSSLANE_EXPORTED int nvtx_listener_open() {
  const std::lock_guard lock(heard().mutex);
  return heard().open;
}

/// What NVTX calls at the first range.
extern "C" CROSSLANE_EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = generic(push);
  *table[NVTX_CBID_CORE_RangePop] = generic(pop);
  return 1;
}
