// Testing many MPI requests by one call, with each one's code and status going to its owner.
#include "engine/requests.h"

#include "mpi/status.h"

#include <algorithm>
#include <new>
#include <utility>

namespace crosslane::engine {

void Requests::adopt(std::shared_ptr<RequestState> request) {
  if (request->adopted.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock{mutex_};
  if (request->adopted.load(std::memory_order_relaxed)) return;
  RequestState& kept = *request;
  adopted_.push_back(std::move(request));
  kept.adopted.store(true, std::memory_order_relaxed);  // only now: there may have been no memory for it
  adopted_count_.store(adopted_.size(), std::memory_order_release);
  count_.fetch_add(1, std::memory_order_release);
}

// The first test is of each alone: a null or inactive handle is done by it, while MPI_Testsome would never name it.
bool Requests::take_adopted() {
  if (adopted_count_.load(std::memory_order_acquire) == 0) return false;
  const std::size_t first = states_.size();
  {
    const std::lock_guard lock{mutex_};
    handles_.resize(first + adopted_.size());
    try {
      states_.insert(states_.end(), adopted_.begin(), adopted_.end());
    } catch (const std::bad_alloc&) {
      handles_.resize(first);
      throw;
    }
    adopted_.clear();
    adopted_count_.store(0, std::memory_order_relaxed);
  }
  for (std::size_t index = first; index < states_.size(); ++index) handles_[index] = *states_[index]->request;
  cancel_unwanted(first);
  return test_each(first);
}

// Completions that went while their request was pending (when_any): the handle is the user's again, untouched.
void Requests::drop_abandoned() {
  bool dropped = false;
  for (auto& state : states_) {
    if (state.use_count() > 1) continue;
    state = nullptr;
    count_.fetch_sub(1, std::memory_order_release);
    dropped = true;
  }
  if (dropped) erase_finished();
}

void Requests::cancel_unwanted(std::size_t first) {
  for (std::size_t index = first; index < states_.size(); ++index) {
    auto& unwanted = states_[index]->unwanted;
    if (unwanted.load(std::memory_order_relaxed) && unwanted.exchange(false, std::memory_order_acquire))
      below_.Cancel(&handles_[index]);
  }
}

void Requests::finish(std::size_t index, int code, const MPI_Status& status) noexcept {
  RequestState& state = *states_[index];
  *state.request = handles_[index];
  if (state.status != nullptr) mpi::copy_but_error(status, state.status);  // as MPI_Test leaves it
  state.code = code;
  // Reads as: the handle, the status and the code are written; seen by Completion::done().
  state.finished.store(true, std::memory_order_release);
  states_[index] = nullptr;
  count_.fetch_sub(1, std::memory_order_release);
}

void Requests::erase_finished() {
  std::size_t kept = 0;
  for (std::size_t index = 0; index < states_.size(); ++index) {
    if (!states_[index]) continue;
    handles_[kept] = handles_[index];
    if (kept != index) states_[kept] = std::move(states_[index]);
    ++kept;
  }
  handles_.resize(kept);
  states_.resize(kept);
}

bool Requests::test_each(std::size_t first) {
  bool finished = false;
  for (std::size_t index = first; index < states_.size(); ++index) {
    MPI_Status status{};
    int flag = 0;
    const int code = below_.Test(&handles_[index], &flag, &status);
    if (code == mpi::success && flag == 0) continue;
    finish(index, code, status);
    finished = true;
  }
  if (finished) erase_finished();
  return finished;
}

bool Requests::some(Some call) {
  if (handles_.empty()) return false;
  const int count = static_cast<int>(handles_.size());
  indices_.resize(handles_.size());
  statuses_.resize(handles_.size());
  int done = 0;
  const int code = call(count, handles_.data(), &done, indices_.data(), statuses_.data());
  // Another error than "look into the statuses" does not say what is done.
  if (code != mpi::success && code != mpi::err_in_status) return test_each(0);
  if (done == mpi::undefined) return test_each(0);  // all became inactive behind our back
  for (int one = 0; one < done; ++one) {
    const auto position = static_cast<std::size_t>(one);
    const MPI_Status& status = statuses_[position];
    finish(static_cast<std::size_t>(indices_[position]), code == mpi::success ? mpi::success : status.MPI_ERROR,
           status);
  }
  if (done > 0) erase_finished();
  return done > 0;
}

bool Requests::test() {
  drop_abandoned();
  cancel_unwanted(0);
  return take_adopted() || some(below_.Testsome);
}

void Requests::sleep() {
  drop_abandoned();
  cancel_unwanted(0);
  if (!take_adopted()) some(below_.Waitsome);
}

}  // namespace crosslane::engine
