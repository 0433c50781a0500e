// See pending.h.
#include "interpose/pending.h"

#include "interpose/pending_pass.h"
#include "interpose/receive.h"
#include "interpose/undertaking.h"
#include "mpi/status.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

namespace crosslane::interpose {

Pending::Pending(const Site& site, const char* call, const MPI_Request requests[], int count, Target& blamed,
                 Purpose purpose)
    : process_(site.process()),
      functions_(site.next()),
      call_(call),
      blamed_(blamed),
      requests_(requests),
      purpose_(purpose) {
  if (purpose == Purpose::completion) process_.awaited().completes(process_);
  const auto add = [&](int i, std::shared_ptr<Operation> operation) {
    if (operations_.empty()) {
      operations_.resize(static_cast<std::size_t>(count));
      found_.resize(static_cast<std::size_t>(count), Found::nothing);
      handles_.assign(requests, requests + count);
    }
    receives_ += operation->look ? 1 : 0;
    awaits_mpi_ = awaits_mpi_ || (operation->look && operation->active && operation->look->awaits_mpi());
    if (completes_alone()) operation->completing = true;
    operations_[static_cast<std::size_t>(i)] = std::move(operation);
  };
  auto& table = process_.requests();
  if (!takes_out()) {
    table.find_each(requests, count, process_.library().handles().request_null, add);
    return;
  }
  for (int i = 0; i < count; ++i)
    if (auto operation = table.take_to_complete(requests[i])) add(i, std::move(operation));
}

bool Pending::takes_out() const noexcept { return purpose_ == Purpose::completion && process_.multiple(); }
bool Pending::completes_alone() const noexcept { return purpose_ == Purpose::completion && !process_.multiple(); }

void Pending::leave_turns_to_wait() noexcept {
  waits_ = true;
  process_.awaited().waits_for(process_, handles_);
}

Pending::~Pending() {
  const MPI_Request none = process_.library().handles().request_null;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    auto& operation = operations_[i];
    if (!operation || purpose_ == Purpose::query) continue;
    operation->completing = false;
    if (operation->persistent) continue;
    // Of an exception behind MPI's call: another request may have that handle by now.
    const bool gone = requests_[i] == none && handles_[i] != none;
    if (gone && completes_alone()) process_.requests().drop(handles_[i], operation);
    if (!gone && takes_out()) process_.requests().add(handles_[i], std::move(operation));
  }
}

int Pending::fail(const Target& target) {
  auto what = std::current_exception();
  if (what == nullptr) throw;  // the end of this thread, or of another language: nothing that could be kept
  failures_.push_back({target, std::move(what)});
  try {
    return mpi::error_class(caught().error_class);
  } catch (...) {
    return mpi::err_other;  // the application's
  }
}

void Pending::raise_failures() {
  for (const auto& [target, what] : std::exchange(failures_, {})) {
    try {
      std::rethrow_exception(what);
    } catch (...) {
      raise_caught(process_, target, call_);
    }
  }
}

Operation* Pending::look_at(int index) const {
  const auto& operation = operations_[static_cast<std::size_t>(index)];
  return operation && operation->active && operation->looks() ? operation.get() : nullptr;
}

Pending::Found Pending::state_of(const Operation& operation) {
  if (!operation.ready()) return Found::unready;  // first: an undertaking may get over meanwhile
  return operation.ends_here() ? Found::over : Found::ready;
}

bool Pending::looks() const noexcept {
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (look_at(static_cast<int>(i)) != nullptr) return true;
  return false;
}

bool Pending::any_persistent() const noexcept {
  return std::ranges::any_of(operations_, [](const auto& one) { return one && one->persistent; });
}

bool Pending::advance(Until until) {
  if (!waits_) process_.engine().progress();
  if (!std::exchange(listed_, true)) {
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (look_at(static_cast<int>(i)) != nullptr) {
        found_[i] = Found::unready;  // MPI completes none of them before it was seen
        open_.push_back(static_cast<int>(i));
      }
  }
  if (open_.empty()) return true;
  // Of very many each pass of a call that waits sees some: the next ones that MPI may have brought, and the next of those under way.
  constexpr std::size_t many = 256;
  bool must_turn_mpi = false;
  {
    Pass pass(*this, until);  // what it has gathered is under way once it is gone
    if (pass.stops()) next_ = next_other_ = static_cast<int>(process_.requests().next_turn() % operations_.size());
    if (waits_ && open_.size() > many) {
      const int behind = pass.over(Pass::Which::awaited, next_, many);
      next_ = pass.missed_at().value_or(behind);
      next_other_ = pass.over(Pass::Which::others, next_other_, many);
    } else {
      pass.over(Pass::Which::all, next_, open_.size());
      next_ = pass.missed_at().value_or(0);
    }
    must_turn_mpi = pass.must_turn_mpi();
  }
  // What an undertaking waits for may depend on a message of this rank.
  if (must_turn_mpi) process_.engine().make_mpi_progress();
  return open_.empty();
}

std::vector<int> Pending::take_over() noexcept { return std::exchange(over_, {}); }

bool Pending::ends_here(int index) const { return found_[static_cast<std::size_t>(index)] == Found::over; }

bool Pending::may_end_early(int index) const {
  return ends_here(index) && !operations_[static_cast<std::size_t>(index)]->persistent;
}

bool Pending::hidden(int index) const {
  const Found found = found_[static_cast<std::size_t>(index)];
  return found == Found::unready || found == Found::over;
}

int Pending::end(int index, MPI_Request* request, MPI_Status* status) {
  const auto& operation = operations_[static_cast<std::size_t>(index)];
  blamed_ = operation->raised_on();
  int result = mpi::success;
  try {
    const auto lock = process_.handle(*operation);
    if (process_.multiple() && !operation->persistent)
      process_.requests().drop(handles_[static_cast<std::size_t>(index)], operation);
    if (operation->undertaking) {
      finish_undertaking(process_, *operation, request, status);
    } else {
      result = finish(process_, functions_, *operation, request, status);
    }
  } catch (...) {
    result = fail(blamed_);
  }
  release(index);
  return result;
}

void Pending::release(int index) {
  auto& operation = operations_[static_cast<std::size_t>(index)];
  found_[static_cast<std::size_t>(index)] = Found::nothing;
  if (!operation->persistent) {
    if (completes_alone()) process_.requests().drop(handles_[static_cast<std::size_t>(index)], operation);
    return operation.reset();
  }
  // Open MPI frees a persistent request that fails.
  if (requests_[index] == process_.library().handles().request_null) {
    process_.requests().drop(handles_[static_cast<std::size_t>(index)], operation);
    return operation.reset();
  }
  const auto lock = process_.handle(*operation);
  operation->active = false;
  operation->delivered = false;
}

void Pending::leave_ready_to_mpi() {
  if (!process_.multiple()) return;  // they stay known until release()
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (found_[i] == Found::ready && !operations_[i]->persistent) process_.requests().drop(handles_[i], operations_[i]);
}

std::vector<MPI_Request> Pending::visible(const MPI_Request requests[]) {
  leave_ready_to_mpi();
  std::vector<MPI_Request> handles(requests, requests + operations_.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    if (hidden(static_cast<int>(i))) handles[i] = process_.library().handles().request_null;
  return handles;
}

void Pending::copy_back(const std::vector<MPI_Request>& handles, MPI_Request requests[]) const {
  for (std::size_t i = 0; i < handles.size(); ++i)
    if (!hidden(static_cast<int>(i))) requests[i] = handles[i];
}

bool Pending::left_alone(const MPI_Request requests[], const std::vector<MPI_Request>& handles,
                         const Statuses& statuses) const {
  const MPI_Request none = process_.library().handles().request_null;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const int index = static_cast<int>(i);
    if (hidden(index) || handles[i] == none || handles[i] != requests[i]) continue;
    const int code = mpi::error(statuses[index]);
    if (code != mpi::success && code != mpi::err_pending && !(operations_[i] && operations_[i]->persistent))
      return true;
  }
  return false;
}

bool Pending::is_gone(int index, MPI_Request handle) const {
  if (handle == process_.library().handles().request_null) return true;
  const auto& operation = operations_[static_cast<std::size_t>(index)];
  int flag = 0;
  MPI_Status status;
  return operation && operation->persistent &&
         process_.library().below().Request_get_status(handle, &flag, &status) == mpi::success && flag != 0;
}

std::vector<MPI_Request> Pending::others(const MPI_Request requests[]) const {
  std::vector<MPI_Request> handles(requests, requests + operations_.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    if (active(static_cast<int>(i))) handles[i] = process_.library().handles().request_null;
  return handles;
}

void Pending::deliver(const std::vector<int>& indices, const Statuses& statuses) noexcept {
  // Another thread that has the request must not see it delivered before it is: completed() holds it meanwhile.
  const auto apart = [&](const Operation& operation) {
    return operation.one_sided || (process_.multiple() && (operation.persistent || operation.look));
  };
  std::vector<Operation*> mine;  // what a query has delivered stays so
  try {
    mine.reserve(indices.size());
    lane::Batch batch(process_.copier(), watch());
    for (const int index : indices) {
      const auto& operation = operations_[static_cast<std::size_t>(index)];
      if (apart(*operation) || operation->delivered) continue;
      mine.push_back(operation.get());
      operation->deliver(batch, &statuses[index], process_.library().below());
    }
    batch.wait();
  } catch (const std::exception&) {
    for (Operation* const operation : mine) operation->delivered = false;
  }
}

int Pending::completed(int index, const MPI_Status* status, int code) {
  const auto operation = operations_[static_cast<std::size_t>(index)];
  if (!operation || (operation->persistent && !operation->active)) return code;
  blamed_ = operation->raised_on();
  // An error that is not a truncation leaves the status unset, and nothing is known to have arrived.
  const auto& below = process_.library().below();
  try {
    if (code == mpi::success || mpi::is_truncation(below, code)) {
      const auto lock = process_.handle(*operation);
      operation->deliver(process_.copier(), status, below);
    }
    if (operation->look && operation->look->send_error) std::rethrow_exception(operation->look->send_error);
  } catch (...) {
    code = fail(blamed_);
  }
  release(index);  // others see it active until all is there
  return code;
}

int Pending::query(int index, MPI_Request request, int* flag, MPI_Status* status) {
  *flag = 0;
  std::unique_lock<std::mutex> lock;
  if (const auto& known = operations_[static_cast<std::size_t>(index)]) lock = process_.handle(*known);
  if (Operation* const operation = look_at(index)) {
    blamed_ = operation->raised_on();
    if (operation->look) {
      interpose::advance(process_, *operation, request);
    } else if (!operation->ready()) {
      process_.engine().progress();
      operation->undertaking->look();
      process_.engine().make_mpi_progress();
    }
    if (!operation->ready()) return mpi::success;
    if (operation->ends_here()) {
      *flag = 1;
      if (operation->undertaking) operation->undertaking->deliver();
      mpi::copy_but_error(operation->look ? operation->look->status : operation->undertaking->status(), status);
      return mpi::success;
    }
  }
  Statuses own(status, 1);
  const int result = functions_.Request_get_status(request, flag, own.data());
  if (result == mpi::success && *flag != 0 && active(index)) {
    const auto& operation = operations_[static_cast<std::size_t>(index)];
    blamed_ = operation->raised_on();
    operation->deliver(process_.copier(), own.data(), process_.library().below());
  }
  return result;
}

engine::Watch Pending::watch() noexcept {
  engine::Watch watch{.call = call_};
  watched_ = operations_.size();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (!operations_[i] || !operations_[i]->active) continue;
    const auto lock = process_.handle(*operations_[i]);
    if (operations_[i]->looks() && operations_[i]->ready()) continue;
    watch = operations_[i]->watch();
    watch.call = call_;
    watched_ = i;
    break;
  }
  watch.events = &events_;
  return watch;
}

}  // namespace crosslane::interpose
