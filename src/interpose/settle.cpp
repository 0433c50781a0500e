// What is left to Crosslane after the application's call: operations whose requests it freed, and payloads kept for slow
// receivers. Later calls give them a turn, MPI_Finalize ends them.
#include "base/log.h"
#include "interpose/process.h"
#include "interpose/receive.h"
#include "interpose/undertaking.h"

#include <utility>

namespace crosslane::interpose {
namespace {

// Open MPI has freed a persistent request that failed.
void free_if_there(Process& process, MPI_Request request) {
  if (request != process.library().handles().request_null) process.library().below().Request_free(&request);
}

// Nobody is left to be told of an error but who reads the log.
void end(Process& process, Operation& operation, MPI_Request request) {
  try {
    if (operation.undertaking) {
      finish_undertaking(process, operation, &request, mpi::status_ignore());
    } else {
      finish(process, process.library().below(), operation, &request, mpi::status_ignore());
    }
  } catch (const base::Error& error) {
    base::log(base::Topic::error, "{}, whose request was freed: {}", operation.call, error.what());
  }
  if (operation.persistent) free_if_there(process, request);
}

// False: it is still under way.
bool settle_one(Process& process, const std::shared_ptr<Operation>& operation, MPI_Request request, bool wait) {
  const auto& below = process.library().below();
  if (operation->looks()) {
    if (operation->look) operation->look->left = true;
    const auto ready = [&] {
      if (operation->look) advance(process, *operation, request);
      if (operation->ready()) return true;
      if (operation->undertaking) process.engine().make_mpi_progress();
      return false;
    };
    if (wait) process.engine().until(ready, operation->watch());
    if (operation->undertaking) process.engine().progress();
    if (!ready()) return false;
    end(process, *operation, request);
    return true;
  }
  int flag = 1;
  MPI_Status status;
  MPI_Request held = request;
  if (wait) {
    below.Wait(&held, &status);
  } else {
    below.Test(&held, &flag, &status);
  }
  if (flag == 0) return false;
  operation->deliver(process.copier(), &status, below);
  if (operation->persistent) free_if_there(process, held);
  return true;
}

}  // namespace

void Process::settle(bool all) {
  if (transfers_) transfers_->progress();
  for (auto& [request, operation] : requests_.take_adopted())
    if (!settle_one(*this, operation, request, all)) requests_.adopt(request, std::move(operation));
}

}  // namespace crosslane::interpose
