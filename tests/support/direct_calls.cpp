// See direct_calls.h.
#include "support/direct_calls.h"

#include <dlfcn.h>

namespace crosslane::tests {

std::int64_t direct_calls(const std::string& collective, const char* algorithm) {
  using Query = std::uint64_t (*)(const char*, const char*);
  static void* const symbol = dlsym(RTLD_DEFAULT, "crosslane_direct_calls");
  if (symbol == nullptr) return -1;
  return static_cast<std::int64_t>(reinterpret_cast<Query>(symbol)(collective.c_str(), algorithm));
}

}  // namespace crosslane::tests
