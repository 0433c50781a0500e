// The runner's loop, and the root coroutine that stands under each spawned task.
#include "engine/runner.h"

#include "base/error.h"
#include "base/log.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

namespace crosslane::engine {

struct Runner::Root::promise_type : task_detail::PromiseBase {
  std::shared_ptr<TaskState> state = std::make_shared<TaskState>();
  promise_type* previous = nullptr;
  promise_type* following = nullptr;
  promise_type* next = nullptr;  // of those posted, or in a list of Roots
  // What its innermost coroutine waits for, and goes on then. Before it has begun: itself.
  Completion awaited;
  std::coroutine_handle<> task = std::coroutine_handle<promise_type>::from_promise(*this);

  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<promise_type> root) const noexcept {
      promise_type& promise = root.promise();
      const auto ended = promise.state;
      ended->error = std::move(promise.error);
      promise.runner->unlink(promise);
      root.destroy();
      ended->finished.store(true, std::memory_order_release);
    }
    void await_resume() const noexcept {}
  };

  Root get_return_object() noexcept { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
  [[nodiscard]] Final final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
};

TaskState::~TaskState() {
  if (!error || seen.load(std::memory_order_relaxed)) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& problem) {
    base::log(base::Topic::error, "a task failed, and nobody waited for it: {}", problem.what());
  } catch (...) {
    base::log(base::Topic::error, "a task failed, and nobody waited for it");
  }
}

void task_detail::pass_to(Runner& runner, std::coroutine_handle<> next) noexcept { runner.next_ = next; }

void task_detail::suspend(Runner& runner, const Completion& completion, std::coroutine_handle<> task) {
  runner.adopt(completion);
  Runner::Root::promise_type& root = *runner.running_;
  root.awaited = completion;
  root.task = task;
  runner.suspended_.add(root);
}

void Runner::Roots::add(Root::promise_type& root) noexcept {
  (first == nullptr ? first : last->next) = &root;
  last = &root;
}

Runner::Root::promise_type* Runner::Roots::take_first() noexcept {
  Root::promise_type* const root = first;
  if (root != nullptr) remove_behind(nullptr);
  return root;
}

void Runner::Roots::remove_behind(Root::promise_type* before) noexcept {
  Root::promise_type*& link = before == nullptr ? first : before->next;
  if (last == link) last = before;
  link = std::exchange(link->next, nullptr);
}

// The task's frame is gone, with all that it holds, before the root's end tells anybody.
Runner::Root Runner::run(Task<> task) {
  Task<> body = std::move(task);
  co_await std::move(body);
}

Completion Runner::post(Task<> task) {
  const auto handle = run(std::move(task)).handle;
  Root::promise_type& root = handle.promise();
  root.runner = this;
  Completion completion{Completion::Kind::task, root.state};
  {
    const std::lock_guard lock{mutex_};
    root.following = roots_;
    if (roots_ != nullptr) roots_->previous = &root;
    roots_ = &root;
    live_.fetch_add(1, std::memory_order_release);
    if (posted())
      last_posted_->next = &root;
    else
      first_posted_.store(&root, std::memory_order_seq_cst);
    last_posted_ = &root;
  }
  return completion;
}

// Before `finished` is stored: whoever sees the last task finished sees the runner idle.
void Runner::unlink(Root::promise_type& root) noexcept {
  {
    const std::lock_guard lock{mutex_};
    (root.previous != nullptr ? root.previous->following : roots_) = root.following;
    if (root.following != nullptr) root.following->previous = root.previous;
  }
  live_.fetch_sub(1, std::memory_order_release);
}

// What a task throws stays in its promise.
void Runner::resume(Root::promise_type& root) noexcept {
  running_ = &root;
  next_ = root.task;
  while (next_) std::exchange(next_, nullptr).resume();
}

bool Runner::start_posted() noexcept {
  if (first_posted_.load(std::memory_order_acquire) == nullptr) return false;
  Root::promise_type* next = nullptr;
  {
    const std::lock_guard lock{mutex_};
    next = first_posted_.exchange(nullptr, std::memory_order_relaxed);
  }
  while (next != nullptr) {
    Root::promise_type& root = *next;
    next = std::exchange(root.next, nullptr);
    resume(root);
  }
  return true;
}

bool Runner::turn() noexcept {
  bool moved = start_posted();
  Roots ready;  // all are looked at before one goes on: it may suspend anew
  Moment moment;
  Root::promise_type* before = nullptr;
  for (Root::promise_type* root = suspended_.first; root != nullptr;) {
    Root::promise_type* const next = root->next;
    if (!root->awaited.done(moment)) {
      before = root;
    } else {
      moved = moved || root->awaited.advanced();
      suspended_.remove_behind(before);
      root->awaited = {};
      ready.add(*root);
    }
    root = next;
  }
  while (Root::promise_type* const root = ready.take_first()) resume(*root);
  return moved;
}

bool Runner::needs_no_polling() const {
  if (posted()) return false;
  for (const Root::promise_type* root = suspended_.first; root != nullptr; root = root->next)
    if (!root->awaited.needs_no_polling() || root->awaited.done()) return false;
  return true;
}

std::optional<base::Time> Runner::next_due() const {
  if (posted()) return std::nullopt;
  std::optional<base::Time> first;
  for (const Root::promise_type* root = suspended_.first; root != nullptr; root = root->next) {
    const auto due = root->awaited.due();
    if (!due) return std::nullopt;
    first = std::min(first.value_or(*due), *due);
  }
  return first;
}

void Runner::abandon() noexcept {
  const auto stopped =
      std::make_exception_ptr(base::Error(base::ErrorClass::intern, "the task was stopped before its end"));
  suspended_ = {};
  {
    const std::lock_guard lock{mutex_};
    first_posted_.store(nullptr, std::memory_order_relaxed);
  }
  while (roots_ != nullptr) {
    Root::promise_type& root = *roots_;
    const auto state = root.state;
    state->error = stopped;
    state->seen.store(true, std::memory_order_relaxed);  // its owner knows that it stopped it
    unlink(root);
    std::coroutine_handle<Root::promise_type>::from_promise(root).destroy();
    state->finished.store(true, std::memory_order_release);
  }
}

Runner::~Runner() { abandon(); }

}  // namespace crosslane::engine
