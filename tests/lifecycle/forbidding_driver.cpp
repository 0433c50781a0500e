// A driver library (libcuda.so.1) under a host-only program: it answers whether a pointer is the GPU's, and ends the
// process with the call's name if anything else of what Crosslane may call is called. No context, no memory, no stream.
// It must not know MPI.
#include "gpu/driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#define CROSSLANE_STRING(name) #name
#define CROSSLANE_SYMBOL(name) CROSSLANE_STRING(name)  // after the header's macros: "cuMemAlloc_v2"

namespace {

std::atomic<int> queries{0};

[[noreturn]] void refuse(const char* call) {
  static_cast<void>(std::fprintf(stderr, "lifecycle_host FAILED: %s was called in a host-only program\n", call));
  static_cast<void>(std::fflush(stderr));
  std::_Exit(1);
}

}  // namespace

// How often it was asked whether a pointer is its own.
extern "C" __attribute__((visibility("default"))) int crosslane_test_pointer_queries();
extern "C" int crosslane_test_pointer_queries() { return queries; }

// Each entry under a name of its own, and the driver's symbol set to it: the header has declared that with a type.
#define CROSSLANE_ENTRY(member, function)                                                                        \
  extern "C" int crosslane_test_##member();                                                                      \
  extern "C" int crosslane_test_##member() {                                                                     \
    constexpr std::string_view name = #member;                                                                   \
    if (name != "pointer_get_attribute" && name != "pointer_get_attributes") refuse(CROSSLANE_SYMBOL(function)); \
    ++queries;                                                                                                   \
    return CUDA_ERROR_NOT_INITIALIZED;                                                                           \
  }                                                                                                              \
  asm(".globl " CROSSLANE_SYMBOL(function) "\n.set " CROSSLANE_SYMBOL(function) ", crosslane_test_" #member);
CROSSLANE_DRIVER_FUNCTIONS(CROSSLANE_ENTRY)
#undef cuEventElapsedTime  // the one that is taken by its first name
CROSSLANE_ENTRY(event_elapsed_time, cuEventElapsedTime)
