// See beneath.h.
#include "support/beneath.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace crosslane::tests {

void* beneath(const char* name) {
  void* const library = dlopen(CROSSLANE_TEST_MPI_SONAME, RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : dlsym(library, name);
}

void nothing_beneath(const char* name) {
  fmt::print(stderr, "tests/support: {} is not loaded, or has no {}\n", CROSSLANE_TEST_MPI_SONAME, name);
  std::abort();
}

}  // namespace crosslane::tests
