// See split_collectives.h.
#include "interpose/split_collectives.h"

#include "interpose/manual.h"

namespace crosslane::interpose {

int begin_split(Route& route, MPI_File file, Route::Starting invoke) {
  route.took("staged");
  route.stage_and_fetch();
  const int result = invoke(route.next(), route.operation().narrowed);
  if (result == mpi::success) route.process().split_collectives().put(file, route.shared_operation());
  return result;
}

int manual::split_end(const Site& site, const char* call, MPI_File fh, const void* buf, MPI_Status* status, End end) {
  auto& process = site.process();
  const auto operation = site.watching() ? process.split_collectives().take(fh) : nullptr;
  if (operation == nullptr) return end(const_cast<void*>(buf), status);
  return run_route(process, site.next(), call, Target::of_file(fh), [&](Route&) {
    MPI_Status own;
    MPI_Status* const told = status == mpi::status_ignore() ? &own : status;
    const int result = end(operation->arguments.front().address(), told);
    if (result == mpi::success) operation->deliver(process.copier(), told, process.library().below());
    return result;
  });
}

}  // namespace crosslane::interpose
