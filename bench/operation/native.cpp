// See native.h.
#include "native.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <stdexcept>

namespace crosslane::bench {
namespace {

template <class Function>
void get(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr)
    throw std::runtime_error(fmt::format("no {} in this process: Crosslane is not preloaded", name));
}

}  // namespace

Native Native::find() {
  Native native;
  get("crosslane_prepare", native.prepare);
  get("crosslane_direct_calls", native.direct_calls);
  get("crosslane_allreduce_enqueue", native.allreduce);
  get("crosslane_reduce_enqueue", native.reduce);
  get("crosslane_broadcast_enqueue", native.broadcast);
  get("crosslane_allgather_enqueue", native.allgather);
  get("crosslane_reduce_scatter_block_enqueue", native.reduce_scatter);
  get("crosslane_alltoall_enqueue", native.alltoall);
  get("crosslane_gather_enqueue", native.gather);
  get("crosslane_scatter_enqueue", native.scatter);
  return native;
}

}  // namespace crosslane::bench
