// See windows.h.
#include "interpose/windows.h"

#include <algorithm>
#include <exception>

namespace crosslane::interpose {

void Window::began(int target, std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  accesses_.push_back({target, std::move(operation)});
}

void Window::complete(Process& process, std::optional<int> target) {
  std::vector<Access> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto going =
        std::ranges::stable_partition(accesses_, [&](const Access& each) { return target && each.target != *target; });
    ended.assign(std::make_move_iterator(going.begin()), std::make_move_iterator(going.end()));
    accesses_.erase(going.begin(), going.end());
  }
  // Of those with requests, some were completed by these.
  std::erase_if(ended, [](const Access& each) { return !each.operation->active; });
  if (ended.empty()) return;
  lane::Batch batch(process.copier(), ended.front().operation->watch());
  for (const Access& each : ended) each.operation->deliver(batch, nullptr, process.library().below());
  batch.wait();
}

void Window::publish(const char* call) {
  if (!shadow_) return;
  const std::lock_guard lock(mutex_);
  shadow_->publish(call);
}

void Window::acquire(const char* call) {
  if (!shadow_) return;
  const std::lock_guard lock(mutex_);
  shadow_->acquire(call);
}

namespace {

void keep(Route& route, MPI_Win win, int target, std::shared_ptr<Operation> operation) {
  route.process()
      .windows()
      .find_or_put(win, [] { return std::make_shared<Window>(); })
      ->began(target, std::move(operation));
}

}  // namespace

int access(Route& route, MPI_Win win, int target, Route::Starting invoke) {
  auto& operation = route.operation();
  if (target == mpi::proc_null) return invoke(route.next(), operation.narrowed);  // MPI looks at no buffer
  route.took("staged");
  route.stage_and_fetch();
  const int result = invoke(route.next(), operation.narrowed);
  if (result != mpi::success || route.bytes() == 0) return result;
  operation.active = true;
  keep(route, win, target, route.shared_operation());
  return result;
}

int access(Route& route, MPI_Win win, int target, MPI_Request* request, Route::Starting invoke) {
  auto operation = route.shared_operation();
  if (target == mpi::proc_null) return invoke(route.next(), operation->narrowed);
  const int result = route.nonblocking(request, invoke);
  if (result == mpi::success && route.bytes() != 0 && operation->active) keep(route, win, target, std::move(operation));
  return result;
}

}  // namespace crosslane::interpose
