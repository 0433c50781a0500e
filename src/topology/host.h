// Which machine a rank runs on, in a form that ranks can compare, and its processors. It must not know MPI.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace crosslane::topology {

/// Equal on ranks that see the same machine under the same name. Containers with names of their own count as machines of
/// their own: their shared memory is not shared either, unless someone arranged for it.
using HostIdentity = std::array<std::uint64_t, 2>;

/// From the kernel's boot identifier and the processor name that MPI gives (simulated hosts share the kernel, not the name).
HostIdentity host_identity(std::string_view processor_name);

/// Processors that this machine has online, whichever of them a rank is bound to.
int processors() noexcept;

}  // namespace crosslane::topology
