// See windows.h.
#include "interpose/windows.h"

#include "base/attempt.h"
#include "interpose/sending.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace crosslane::interpose {
namespace {

using Operations = std::vector<std::shared_ptr<Operation>>;

// All in one wait, or one by one where that fails.
void deliver(Process& process, const Operations& operations, std::exception_ptr& failure) {
  const auto& below = process.library().below();
  if (operations.empty()) return;
  try {
    lane::Batch batch(process.copier(), operations.front()->watch());
    for (const auto& operation : operations) operation->deliver(batch, nullptr, below);
    batch.wait();
  } catch (const std::exception&) {
    for (const auto& operation : operations) {
      operation->delivered = false;
      base::attempt(failure, [&] { operation->deliver(process.copier(), nullptr, below); });
    }
  }
}

}  // namespace

void Window::began(std::list<Access> one) noexcept {
  const std::lock_guard lock(mutex_);
  one.front().number = ++begun_;
  accesses_.splice(accesses_.end(), one);
  // Many requests may be completed before anything completes them here.
  if (accesses_.size() <= enough_) return;
  accesses_.remove_if([](const Access& each) { return !each.kept && each.requested.expired(); });
  enough_ = 2 * accesses_.size() + 64;
}

std::uint64_t Window::begun() {
  const std::lock_guard lock(mutex_);
  return begun_;
}

bool Window::fetches(std::optional<int> target) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(accesses_, [&](const Access& each) {
    if (target && each.target != *target) return false;
    const auto operation = each.kept ? each.kept : each.requested.lock();
    return operation && std::ranges::any_of(operation->arguments, [](const auto& one) { return one.writes(); });
  });
}

void Window::complete(Process& process, std::optional<int> target, std::uint64_t begun) {
  // Who finds an access gone finds its results there, too.
  const std::lock_guard one_at_a_time(copying_);
  Operations kept, requested;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = accesses_.begin(); each != accesses_.end() && each->number <= begun;) {
      if (target && each->target != *target) {
        ++each;
        continue;
      }
      if (each->kept)
        kept.push_back(std::move(each->kept));
      else if (auto operation = each->requested.lock())
        requested.push_back(std::move(operation));
      each = accesses_.erase(each);
    }
  }
  if (kept.empty() && requested.empty()) return;
  published_ = false;  // what was fetched may lie in this window
  std::exception_ptr failure;
  deliver(process, kept, failure);
  for (const auto& operation : requested) {
    {
      const std::lock_guard lock(operation->delivering);
      operation->got_early.reset();  // what the window completes has come; and there may be no epoch any more
    }
    base::attempt(failure, [&] { operation->deliver(process.copier(), nullptr, process.library().below()); });
  }
  if (failure) std::rethrow_exception(failure);
}

template <class F>
void Window::for_each_shadow(const F& f) {
  std::exception_ptr failure;
  for (const auto& shadow : shadows_) base::attempt(failure, [&] { f(*shadow); });
  if (failure) std::rethrow_exception(failure);
}

void Window::publish(const char* call, bool unchanged) {
  const std::lock_guard lock(copying_);
  if (!(unchanged && published_)) for_each_shadow([&](Shadow& shadow) { shadow.publish(call); });
  published_ = true;
}

void Window::acquire(const char* call) {
  const std::lock_guard lock(copying_);
  for_each_shadow([&](Shadow& shadow) { shadow.acquire(call); });
}

bool Window::shadowed() {
  const std::lock_guard lock(copying_);
  return !shadows_.empty();
}

void Window::attach(std::unique_ptr<Shadow>& shadow, std::size_t bytes) {
  const std::lock_guard lock(copying_);
  shadows_.reserve(shadows_.size() + 1);
  attachments_->add(shadow->base(), bytes, shadow->host());
  shadows_.push_back(std::move(shadow));
}

int Window::detach(const char* call, const void* base, base::FunctionRef<int(const void*)> invoke) {
  const std::lock_guard lock(copying_);
  const auto found = std::ranges::find_if(shadows_, [&](const auto& shadow) { return shadow->base() == base; });
  if (found == shadows_.end()) return invoke(base);
  (*found)->acquire(call);
  const int code = invoke((*found)->host());
  if (code != mpi::success) return code;
  const auto gone = std::move(*found);
  shadows_.erase(found);
  attachments_->remove(base);
  return code;
}

void Window::pass_by() {
  const std::lock_guard lock(copying_);
  published_ = false;
}

std::shared_ptr<Window> mapped_window(const Site& site, MPI_Win win) {
  auto window = site.watching() ? site.process().windows().find(win) : nullptr;
  return window != nullptr && window->mapped() != nullptr ? window : nullptr;
}

int place_access(const Site& site, const char* call, MPI_Win win, int target, MPI_Aint& displacement, MPI_Count count,
                 MPI_Datatype type) {
  auto& process = site.process();
  const auto window = site.outer() ? process.windows().find(win) : nullptr;
  if (window == nullptr || window->attachments() == nullptr || target == mpi::proc_null) return mpi::success;
  return raising(process, Target::of_win(win), call, [&] {
    const auto layout = packed_bytes(process, count, type) ? process.layouts().of(type) : nullptr;
    if (layout == nullptr) return mpi::success;  // MPI has its own words for such a type
    const auto [begin, end] = layout->span(count);
    displacement = window->attachments()->place(target, displacement, begin, end);
    return mpi::success;
  });
}

Direction fetching(Process& process, MPI_Count count, MPI_Datatype type, MPI_Count target_count,
                   MPI_Datatype target_type) noexcept {
  const auto room = packed_bytes(process, count, type), fetched = packed_bytes(process, target_count, target_type);
  return room && fetched && *fetched < *room ? Direction::inout : Direction::out;
}

// What may fail comes before MPI is asked: from then on it uses the host copies.
int start_access(Route& route, MPI_Win win, int target, Route::Starting invoke) {
  auto& operation = route.operation();
  if (target == mpi::proc_null) return invoke(route.next(), operation.narrowed);  // MPI looks at no buffer
  route.took("staged");
  if (route.bytes() == 0) return invoke(route.next(), operation.narrowed);
  std::list<Window::Access> one{{target, route.shared_operation(), {}}};
  const auto window = route.process().windows().find_or_put(win, [] { return std::make_shared<Window>(); });
  route.stage_and_fetch();
  const int result = invoke(route.next(), operation.narrowed);
  if (result == mpi::success) window->began(std::move(one));
  return result;
}

int start_access(Route& route, MPI_Win win, int target, MPI_Request* request, Route::Starting invoke) {
  const auto operation = route.shared_operation();
  if (target == mpi::proc_null) return invoke(route.next(), operation->narrowed);
  std::list<Window::Access> one{{target, nullptr, operation}};
  const auto window = route.process().windows().find_or_put(win, [] { return std::make_shared<Window>(); });
  operation->one_sided = true;
  // MPI_Rget alone has one buffer, and writes to it.
  if (mpi::gets_complete_early && operation->arguments.size() == 1 && operation->arguments.front().writes())
    operation->got_early = {win, target};
  const int result = route.nonblocking(request, invoke);
  if (result == mpi::success && route.bytes() != 0 && !operation->delivered) window->began(std::move(one));
  return result;
}

}  // namespace crosslane::interpose
