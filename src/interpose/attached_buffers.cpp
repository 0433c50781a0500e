// See attached_buffers.h.
#include "interpose/attached_buffers.h"

#include "interpose/exports.h"
#include "interpose/manual.h"
#include "interpose/route.h"

#include <utility>

namespace crosslane::interpose {

int manual::attach(const Site& site, const char* call, const Target& target, void* buffer, MPI_Count size,
                   Attach attach) {
  if (size <= 0 || !site.watching() || !beyond_cpu(site, buffer)) return attach(buffer);
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    auto& process = route.process();
    process.took_route(call, "staged", static_cast<std::uint64_t>(size));
    auto attached = std::make_shared<AttachedBuffer>(
        AttachedBuffer{buffer, std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size))});
    void* const host = attached->host.get();
    // Before others can detach it.
    process.attached_buffers().put(host, std::move(attached));
    const int result = attach(host);
    if (result != mpi::success) static_cast<void>(process.attached_buffers().take(host));
    return result;
  });
}

int manual::detach(const Site& site, void* buffer_addr, Detach detach) {
  const int result = detach();
  if (result != mpi::success || buffer_addr == nullptr) return result;
  auto* const address = static_cast<void**>(buffer_addr);
  if (const auto attached = site.process().attached_buffers().take(*address)) *address = attached->given;
  return result;
}

}  // namespace crosslane::interpose
