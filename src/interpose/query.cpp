// See query.h.
#include "interpose/query.h"

#include "mpi/returns_errors.h"

#include <optional>
#include <string_view>

namespace crosslane::interpose {

int query(Process& process, MPI_Request request, int* flag, MPI_Status* status) {
  constexpr bool raises = std::string_view(mpi::family) != "openmpi";
  const auto& below = process.library().below();
  std::optional<mpi::ReturnsErrorsOfRequests> returns;
  if (raises && !process.multiple() && mpi::world_exists(below)) returns.emplace(below);
  return below.Request_get_status(request, flag, status);
}

}  // namespace crosslane::interpose
