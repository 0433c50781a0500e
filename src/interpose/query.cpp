// See query.h.
#include "interpose/query.h"

#include "mpi/returns_errors.h"

#include <optional>
#include <string_view>

namespace crosslane::interpose {

int query(Process& process, MPI_Request request, int* flag, MPI_Status* status) {
  constexpr bool raises = std::string_view(mpi::family) != "openmpi";
  const auto& below = process.library().below();
  std::optional<mpi::ReturnsErrors> world, self;
  if (raises && !process.multiple() && mpi::world_exists(below)) {
    world.emplace(below, below.handles->comm_world);
    self.emplace(below, below.handles->comm_self);
  }
  return below.Request_get_status(request, flag, status);
}

}  // namespace crosslane::interpose
