// Task<T>: a C++20 coroutine that starts when it is awaited or spawned, and the awaiter of completions.
// It must not know threads or MPI: one Runner resumes a task and all that it awaits, one at a time.
//
// Control passes symmetrically from awaiter to awaited and back, through the runner's one slot (Runner::pass_to) and not
// by a tail call: GCC makes those in coroutines only when it optimises, and never under a sanitizer, so that a loop over
// tasks that finish at once would grow the stack.
#pragma once

#include "engine/completion.h"

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace crosslane::engine {

class Runner;

namespace task_detail {

void pass_to(Runner& runner, std::coroutine_handle<> next) noexcept;
void suspend(Runner& runner, const Completion& completion, std::coroutine_handle<> task);

/// What every task's promise has: who runs it, whom to resume after it, and what it threw.
struct PromiseBase {
  Runner* runner = nullptr;
  std::coroutine_handle<> continuation;
  std::exception_ptr error;

  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> finished) const noexcept {
      pass_to(*finished.promise().runner, finished.promise().continuation);
    }
    void await_resume() const noexcept {}
  };

  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] Final final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct Promise;

}  // namespace task_detail

/// Work that suspends instead of blocking. It starts when `co_await`ed (or given to Engine::spawn) and passes its result,
/// or the exception that left it, to the awaiter. Destroying a task that is not finished destroys its locals.
/// A coroutine keeps its parameters, not what they refer to: pass by value what must live (and no capturing lambdas).
template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  class Awaiter {
   public:
    explicit Awaiter(std::coroutine_handle<promise_type> task) noexcept : task_(task) {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Parent>
    void await_suspend(std::coroutine_handle<Parent> parent) const noexcept {
      task_.promise().runner = parent.promise().runner;
      task_.promise().continuation = parent;
      pass_to(*parent.promise().runner, task_);
    }
    T await_resume() const {
      if (task_.promise().error) std::rethrow_exception(task_.promise().error);
      return task_.promise().take();
    }

   private:
    std::coroutine_handle<promise_type> task_;
  };

  Awaiter operator co_await() && noexcept { return Awaiter{handle_}; }

 private:
  friend struct task_detail::Promise<T>;
  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

namespace task_detail {

template <class T>
struct Promise : PromiseBase {
  static_assert(!std::is_reference_v<T>, "return a pointer or a std::reference_wrapper");
  std::optional<T> value;

  Task<T> get_return_object() noexcept { return Task<T>{std::coroutine_handle<Promise>::from_promise(*this)}; }
  template <class Value>
    requires std::is_convertible_v<Value&&, T>
  void return_value(Value&& result) {
    value.emplace(std::forward<Value>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept { return Task<void>{std::coroutine_handle<Promise>::from_promise(*this)}; }
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace task_detail

/// Suspends a task until a completion is done. Its result is Completion::code().
class Awaiter {
 public:
  explicit Awaiter(Completion completion) noexcept : completion_(std::move(completion)) {}
  [[nodiscard]] bool await_ready() const noexcept { return completion_.done(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> task) const {
    task_detail::suspend(*task.promise().runner, completion_, task);
  }
  int await_resume() const {
    completion_.rethrow();
    return completion_.code();
  }

 private:
  Completion completion_;
};

inline Awaiter Completion::operator co_await() const { return Awaiter{*this}; }

}  // namespace crosslane::engine
