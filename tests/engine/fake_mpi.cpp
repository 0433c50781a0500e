// The fake MPI: handles are numbers into a table of requests.
#include "fake_mpi.h"

#include <cstdint>
#include <mutex>
#include <type_traits>

namespace fake {
namespace {

namespace mpi = crosslane::mpi;

struct Table {
  std::mutex mutex;
  std::deque<Request> requests;
  Calls calls;
};

Table& table() {
  static Table instance;
  return instance;
}

// Templates, so that the branch of the other family's kind of handle is not compiled.
template <class Handle = MPI_Request>
Handle handle_of(std::uintptr_t number) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(number);
  } else {
    return static_cast<Handle>(number);
  }
}

template <class Handle>
std::uintptr_t number_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uintptr_t>(handle);
  }
}

Request* request_of(MPI_Request handle) {
  const std::lock_guard lock{table().mutex};
  const auto number = number_of(handle);
  return number == 0 ? nullptr : &table().requests.at(number - 1);
}

class Inside {
 public:
  Inside() {
    if (calls().inside.fetch_add(1) != 0) calls().overlapped = true;
  }
  ~Inside() { calls().inside.fetch_sub(1); }
};

// One more test of an active request: true if that completed it.
bool completes(Request& request, bool block) {
  int left = request.tests_left.load(std::memory_order_acquire);
  if (left < 0) return false;
  if (block) left = 0;
  if (left > 0) {
    request.tests_left.fetch_sub(1, std::memory_order_acq_rel);
    return false;
  }
  request.active = false;
  return true;
}

int test(MPI_Request* handle, int* flag, MPI_Status* status) {
  const Inside inside;
  calls().test.fetch_add(1);
  Request* request = request_of(*handle);
  *flag = 1;
  if (request == nullptr || !request->active) return mpi::success;
  if (!completes(*request, false)) {
    *flag = 0;
    return mpi::success;
  }
  status->MPI_SOURCE = request->source;
  if (!request->persistent) *handle = null_handle();
  return request->error;
}

int some(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses, bool block) {
  const Inside inside;
  *done = 0;
  bool any_active = false;
  int code = mpi::success;
  for (int index = 0; index < count; ++index) {
    Request* request = request_of(handles[index]);
    if (request == nullptr || !request->active) continue;
    any_active = true;
    if (!completes(*request, block)) continue;
    indices[*done] = index;
    statuses[*done].MPI_SOURCE = request->source;
    statuses[*done].MPI_ERROR = request->error;
    if (request->error != mpi::success) code = mpi::err_in_status;
    if (!request->persistent) handles[index] = null_handle();
    ++*done;
    if (block) break;
  }
  if (!any_active) *done = mpi::undefined;
  return code;
}

int testsome(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses) {
  calls().testsome.fetch_add(1);
  return some(count, handles, done, indices, statuses, false);
}

int waitsome(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses) {
  calls().waitsome.fetch_add(1);
  return some(count, handles, done, indices, statuses, true);
}

// One that is cancelled completes at the next test; a handle that is not there is a fault.
int cancel(MPI_Request* handle) {
  const Inside inside;
  calls().cancel.fetch_add(1);
  Request* request = request_of(*handle);
  if (request == nullptr || !request->active) {
    calls().overlapped = true;
    return mpi::success;
  }
  request->tests_left = 0;
  return mpi::success;
}

int iprobe(int, int, MPI_Comm, int* flag, MPI_Status*) {
  const Inside inside;
  calls().iprobe.fetch_add(1);
  *flag = 0;
  return mpi::success;
}

}  // namespace

Calls& calls() { return table().calls; }

void reset() {
  table().requests.clear();
  Calls& all = calls();
  all.test = all.testsome = all.waitsome = all.iprobe = all.cancel = 0;
  all.overlapped = false;
}

Request& make(MPI_Request& handle, int tests_left) {
  const std::lock_guard lock{table().mutex};
  Request& request = table().requests.emplace_back();
  request.tests_left = tests_left;
  handle = handle_of(table().requests.size());
  return request;
}

MPI_Request null_handle() { return handle_of(0); }

crosslane::mpi::Functions functions() {
  crosslane::mpi::Functions below{};
  below.Test = test;
  below.Testsome = testsome;
  below.Waitsome = waitsome;
  below.Iprobe = iprobe;
  below.Cancel = cancel;
  return below;
}

}  // namespace fake
