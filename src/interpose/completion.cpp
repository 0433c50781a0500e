// Completion, query and free of requests, some of which carry host copies of ours (MPI 5.0, sections 3.7 and 3.9).
// The MPI completes them; afterwards what they received is copied to GPU memory. Calls with no such request go straight on.
#include "interpose/manual.h"
#include "interpose/process.h"
#include "interpose/route.h"
#include "mpi/status.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace crosslane::interpose {
namespace {

// The operations among an array of requests, out of the table while the MPI is asked.
class Taken {
 public:
  Taken(Process& process, const MPI_Request requests[], int count) : process_(process) {
    auto& table = process.requests();
    for (int i = 0; i < count; ++i) {
      if (auto operation = table.take(requests[i])) {
        if (operations_.empty()) {
          operations_.resize(static_cast<std::size_t>(count));
          handles_.assign(requests, requests + count);
        }
        operations_[static_cast<std::size_t>(i)] = std::move(operation);
      }
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  // What was not completed goes back.
  ~Taken() {
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (operations_[i]) process_.requests().add(handles_[i], std::move(operations_[i]));
  }

  [[nodiscard]] bool none() const noexcept { return operations_.empty(); }
  [[nodiscard]] bool has(int index) const { return operations_[static_cast<std::size_t>(index)] != nullptr; }

  // The MPI has completed request `index`; a persistent one becomes inactive and stays known.
  void completed(int index, const MPI_Status& status) {
    auto& operation = operations_[static_cast<std::size_t>(index)];
    if (!operation || (operation->persistent && !operation->active)) return;
    deliver(*operation, status);
    operation->active = false;
    operation->delivered = false;
    if (!operation->persistent) operation.reset();
  }

  // The MPI says that request `index` is complete, and keeps it until a completion call.
  void queried(int index, const MPI_Status& status) {
    auto& operation = operations_[static_cast<std::size_t>(index)];
    if (operation && (!operation->persistent || operation->active)) deliver(*operation, status);
  }

 private:
  void deliver(Operation& operation, const MPI_Status& status) {
    operation.deliver(process_.copier(), &status, process_.library().below());
  }

  Process& process_;
  std::vector<std::shared_ptr<Operation>> operations_;
  std::vector<MPI_Request> handles_;
};

// The statuses that a call fills: the user's, or our own where the user ignores them.
class Statuses {
 public:
  Statuses(MPI_Status* users, int count)
      : own_(users == mpi::statuses_ignore() ? static_cast<std::size_t>(std::max(count, 1)) : 0),
        statuses_(own_.empty() ? users : own_.data()) {}
  [[nodiscard]] MPI_Status* data() noexcept { return statuses_; }
  [[nodiscard]] const MPI_Status& operator[](int index) const { return statuses_[index]; }

 private:
  std::vector<MPI_Status> own_;
  MPI_Status* statuses_;
};

bool completed_in(int result, const MPI_Status& status) {
  if (result == mpi::success) return true;
  return result == mpi::err_in_status && mpi::error(status) != mpi::err_pending;
}

bool nothing_ours(const Site& site) { return detail::nesting != 0 || site.process().requests().empty(); }

// Runs a completion call; errors of ours are raised where MPI raises those of requests without a communicator.
template <class Body>
int completing(const Site& site, const char* call, Body&& body) {
  auto& process = site.process();
  try {
    const Nested nested;
    process.requests().settle(process.copier(), process.library().below(), false);
    return body();
  } catch (const base::Error& error) {
    return raise(process, Target::self(), call, error);
  } catch (const std::exception& error) {
    return raise(process, Target::self(), call, base::Error(base::ErrorClass::intern, error.what()));
  }
}

}  // namespace

int manual::wait(const Site& site, MPI_Request* request, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Wait(request, status);
  return completing(site, "MPI_Wait", [&] {
    Taken taken(site.process(), request, 1);
    if (taken.none()) return next.Wait(request, status);
    Statuses own(status, 1);
    const int result = next.Wait(request, own.data());
    taken.completed(0, own[0]);
    return result;
  });
}

int manual::waitall(const Site& site, int count, MPI_Request requests[], MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Waitall(count, requests, statuses);
  return completing(site, "MPI_Waitall", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Waitall(count, requests, statuses);
    Statuses own(statuses, count);
    const int result = next.Waitall(count, requests, own.data());
    for (int i = 0; i < count; ++i)
      if (completed_in(result, own[i])) taken.completed(i, own[i]);
    return result;
  });
}

int manual::waitany(const Site& site, int count, MPI_Request requests[], int* index, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Waitany(count, requests, index, status);
  return completing(site, "MPI_Waitany", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Waitany(count, requests, index, status);
    Statuses own(status, 1);
    const int result = next.Waitany(count, requests, index, own.data());
    if (*index >= 0 && *index < count) taken.completed(*index, own[0]);
    return result;
  });
}

int manual::waitsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
                     MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Waitsome(incount, requests, outcount, indices, statuses);
  return completing(site, "MPI_Waitsome", [&] {
    Taken taken(site.process(), requests, incount);
    if (taken.none()) return next.Waitsome(incount, requests, outcount, indices, statuses);
    Statuses own(statuses, incount);
    const int result = next.Waitsome(incount, requests, outcount, indices, own.data());
    for (int i = 0; i < *outcount; ++i) taken.completed(indices[i], own[i]);
    return result;
  });
}

int manual::test(const Site& site, MPI_Request* request, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Test(request, flag, status);
  return completing(site, "MPI_Test", [&] {
    Taken taken(site.process(), request, 1);
    if (taken.none()) return next.Test(request, flag, status);
    Statuses own(status, 1);
    const int result = next.Test(request, flag, own.data());
    if (result != mpi::success || *flag != 0) taken.completed(0, own[0]);
    return result;
  });
}

int manual::testall(const Site& site, int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Testall(count, requests, flag, statuses);
  return completing(site, "MPI_Testall", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Testall(count, requests, flag, statuses);
    Statuses own(statuses, count);
    const int result = next.Testall(count, requests, flag, own.data());
    if (result == mpi::success && *flag == 0) return result;
    for (int i = 0; i < count; ++i)
      if (completed_in(result, own[i])) taken.completed(i, own[i]);
    return result;
  });
}

int manual::testany(const Site& site, int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Testany(count, requests, index, flag, status);
  return completing(site, "MPI_Testany", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Testany(count, requests, index, flag, status);
    Statuses own(status, 1);
    const int result = next.Testany(count, requests, index, flag, own.data());
    if ((result != mpi::success || *flag != 0) && *index >= 0 && *index < count) taken.completed(*index, own[0]);
    return result;
  });
}

int manual::testsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
                     MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Testsome(incount, requests, outcount, indices, statuses);
  return completing(site, "MPI_Testsome", [&] {
    Taken taken(site.process(), requests, incount);
    if (taken.none()) return next.Testsome(incount, requests, outcount, indices, statuses);
    Statuses own(statuses, incount);
    const int result = next.Testsome(incount, requests, outcount, indices, own.data());
    for (int i = 0; i < *outcount; ++i) taken.completed(indices[i], own[i]);
    return result;
  });
}

// A freed request that is still active goes on in the MPI: its host copy lives until then.
int manual::request_free(const Site& site, MPI_Request* request) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Request_free(request);
  return completing(site, "MPI_Request_free", [&] {
    auto& process = site.process();
    auto operation = process.requests().take(*request);
    if (!operation || (operation->persistent && !operation->active)) return next.Request_free(request);
    process.requests().adopt(*request, std::move(operation));
    *request = process.library().handles().request_null;
    return mpi::success;
  });
}

int manual::request_get_status(const Site& site, MPI_Request request, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site)) return next.Request_get_status(request, flag, status);
  return completing(site, "MPI_Request_get_status", [&] {
    Taken taken(site.process(), &request, 1);
    if (taken.none()) return next.Request_get_status(request, flag, status);
    Statuses own(status, 1);
    const int result = next.Request_get_status(request, flag, own.data());
    if (result == mpi::success && *flag != 0) taken.queried(0, own[0]);
    return result;
  });
}

int manual::request_get_status_all(const Site& site, int count, const MPI_Request requests[], int* flag,
                                   MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Request_get_status_all(count, requests, flag, statuses);
  return completing(site, "MPI_Request_get_status_all", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Request_get_status_all(count, requests, flag, statuses);
    Statuses own(statuses, count);
    const int result = next.Request_get_status_all(count, requests, flag, own.data());
    if (result == mpi::success && *flag != 0)
      for (int i = 0; i < count; ++i) taken.queried(i, own[i]);
    return result;
  });
}

int manual::request_get_status_any(const Site& site, int count, const MPI_Request requests[], int* index, int* flag,
                                   MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Request_get_status_any(count, requests, index, flag, status);
  return completing(site, "MPI_Request_get_status_any", [&] {
    Taken taken(site.process(), requests, count);
    if (taken.none()) return next.Request_get_status_any(count, requests, index, flag, status);
    Statuses own(status, 1);
    const int result = next.Request_get_status_any(count, requests, index, flag, own.data());
    if (result == mpi::success && *flag != 0 && *index >= 0 && *index < count) taken.queried(*index, own[0]);
    return result;
  });
}

int manual::request_get_status_some(const Site& site, int incount, const MPI_Request requests[], int* outcount,
                                    int indices[], MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Request_get_status_some(incount, requests, outcount, indices, statuses);
  return completing(site, "MPI_Request_get_status_some", [&] {
    Taken taken(site.process(), requests, incount);
    if (taken.none()) return next.Request_get_status_some(incount, requests, outcount, indices, statuses);
    Statuses own(statuses, incount);
    const int result = next.Request_get_status_some(incount, requests, outcount, indices, own.data());
    if (result == mpi::success)
      for (int i = 0; i < *outcount; ++i) taken.queried(indices[i], own[i]);
    return result;
  });
}

}  // namespace crosslane::interpose
