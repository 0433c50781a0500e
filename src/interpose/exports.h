// How the library's exported functions are marked, and the two ends of a call that has no route.
#pragma once

#include "interpose/route.h"

#define CROSSLANE_EXPORT __attribute__((visibility("default")))

namespace crosslane::interpose {

/// The MPI below does not have this procedure. Says nothing where there is no MPI below, which was told before.
int missing(Process& process, const Target& target, const char* call);

/// True if the MPI below, which works on the CPU, must not be given this pointer by a procedure that has no route. Managed memory
/// that the CPU shares it may have: such programs run without us.
[[nodiscard]] bool beyond_cpu(const Site& site, const void* pointer) noexcept;

}  // namespace crosslane::interpose
