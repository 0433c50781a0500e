// Runner: the tasks of one engine or helper thread, and the loop that resumes those whose completion is done.
// It must not know MPI, nor block: its owner decides which thread calls turn(), and what to do when nothing moved.
#pragma once

#include "base/clock.h"
#include "base/light_mutex.h"
#include "engine/completion.h"
#include "engine/task.h"

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <optional>

namespace crosslane::engine {

/// The state of a spawned task. One that failed unseen says so in the log.
struct TaskState final : CompletionState {
  TaskState() = default;
  TaskState(const TaskState&) = delete;
  TaskState& operator=(const TaskState&) = delete;
  ~TaskState() override;
};

class Runner {
 public:
  Runner() = default;
  virtual ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// Any thread: hands over a task; the next turn starts it. The completion is done when the task is finished. What it throws, for want of memory,
  /// comes before that.
  Completion post(Task<> task);

  /// One thread at a time: resumes every task whose completion is done, and starts those posted.
  /// True if a task moved for another reason than that time passed. Needs no memory of its own, nor does a task that suspends.
  bool turn() noexcept;

  /// One thread at a time: starts those posted, and no more: what is suspended is not looked at. False if there were none. Needs no memory of its own.
  bool start_posted() noexcept;
  /// A task waits to be started. In one order with post(), for all threads.
  [[nodiscard]] bool posted() const noexcept { return first_posted_.load(std::memory_order_seq_cst) != nullptr; }

  /// True if no task is left, neither suspended nor posted.
  [[nodiscard]] bool idle() const noexcept { return live_.load(std::memory_order_acquire) == 0; }

  /// The thread that calls turn(): true if every suspended task waits for MPI requests or for other tasks, and none is
  /// posted: then polling anything but MPI is of no use.
  [[nodiscard]] bool needs_no_polling() const;

  /// The same: the first moment at which a suspended task goes on, where all of them, and there are some, wait for time alone and none is posted.
  [[nodiscard]] std::optional<base::Time> next_due() const;

  /// Destroys all tasks that are not finished; their completions become done with an error. No turn may be running.
  void abandon() noexcept;

 protected:
  /// Called when a task begins to wait, in the thread that calls turn(): registers the completion's requests.
  /// Throws Error (intern) where this runner cannot wait for it.
  virtual void adopt(const Completion& completion) = 0;

 private:
  friend void task_detail::pass_to(Runner& runner, std::coroutine_handle<> next) noexcept;
  friend void task_detail::suspend(Runner& runner, const Completion& completion, std::coroutine_handle<> task);

  // The outermost coroutine of a spawned task. It owns itself: at its end it leaves the list and destroys itself.
  struct Root {
    struct promise_type;
    std::coroutine_handle<promise_type> handle;
  };
  static Root run(Task<> task);
  void resume(Root::promise_type& root) noexcept;
  void unlink(Root::promise_type& root) noexcept;

  // Roots in the order in which they came; each is in one list at most, which needs no memory.
  struct Roots {
    Root::promise_type* first = nullptr;
    Root::promise_type* last = nullptr;
    void add(Root::promise_type& root) noexcept;
    Root::promise_type* take_first() noexcept;
    /// The one behind `before`, or the first.
    void remove_behind(Root::promise_type* before) noexcept;
  };

  // Only the thread that calls turn():
  Root::promise_type* running_ = nullptr;  // under the task that runs
  std::coroutine_handle<> next_;           // passed control by the task that has just suspended
  Roots suspended_;

  // Any thread:
  std::atomic<std::size_t> live_{0};                        // roots not finished
  mutable base::LightMutex mutex_;                          // guards what follows
  std::atomic<Root::promise_type*> first_posted_{nullptr};  // of a list; to be read without the mutex
  Root::promise_type* last_posted_ = nullptr;
  Root::promise_type* roots_ = nullptr;  // all that live, a doubly linked list
};

}  // namespace crosslane::engine
