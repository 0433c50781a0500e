// What can be awaited: a word and the value it must reach, an MPI request, a finished task, a point in time, or a
// combination of these. It must not know who waits: engine/runner.h polls for tasks, engine/engine.h for blocking calls.
#pragma once

#include "base/clock.h"
#include "mpi/abi.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace crosslane::engine {

class Awaiter;

/// The time at one moment, asked for at most once: of many completions that are looked at together several may have a time.
class Moment {
 public:
  [[nodiscard]] base::Time now() noexcept {
    if (!now_) now_ = base::now();
    return *now_;
  }

 private:
  std::optional<base::Time> now_;
};

/// What a completion of this kind shares between its copies. `finished` is stored with release by the thread in the
/// engine after `code`, `error`, the request and the status are written, and loaded with acquire by whoever waits.
struct CompletionState {
  std::atomic<bool> finished{false};
  int code = mpi::success;        ///< What the MPI call that completed the request returned.
  std::exception_ptr error;       ///< What the task threw.
  std::atomic<bool> seen{false};  ///< Somebody was told of the error.

  CompletionState() = default;
  CompletionState(const CompletionState&) = delete;
  CompletionState& operator=(const CompletionState&) = delete;
  virtual ~CompletionState() = default;
};

/// Something that will be over. A copy is the same something. Words and times cost no allocation; the other kinds share a state.
///
/// A word must outlive every wait for it. A request and its status must live until done(), or until the last copy of the
/// completion is gone; in between the handle belongs to the engine, and the user's copy of it is updated when it is done.
class Completion {
 public:
  /// Done already.
  Completion() noexcept = default;

  /// Done once `word` is at least `reached`: words only grow. Whoever writes the word stores with release (a host), or
  /// after a system-wide fence (a GPU); what it wrote before is visible to who sees the completion done.
  static Completion of(const std::atomic<std::uint64_t>& word, std::uint64_t reached) noexcept;

  /// Done once MPI says so: the thread in the engine tests it, nobody else may. `status` may be null. Null and inactive
  /// requests are done at the first test.
  static Completion of(MPI_Request* request, MPI_Status* status = nullptr);

  /// Done `delay` from now.
  static Completion after(base::Duration delay) noexcept;

  /// Done once this one is, or `delay` from now, if that comes first.
  [[nodiscard]] Completion or_after(base::Duration delay) const noexcept;

  /// Done once every member is.
  static Completion when_all(std::vector<Completion> members);

  /// Done once one member is; ask the members which. The others stay as they are.
  static Completion when_any(std::vector<Completion> members);

  /// True once it is over; then what happened before is visible to the caller.
  [[nodiscard]] bool done() const noexcept {
    if (const auto known = done_by_word()) return *known;
    Moment moment;
    return done_by_state(moment);
  }
  /// The same as of that moment.
  [[nodiscard]] bool done(Moment& moment) const noexcept {
    if (const auto known = done_by_word()) return *known;
    return done_by_state(moment);
  }

  /// What MPI returned for a done request (of several: the first that is not success); success for other kinds.
  [[nodiscard]] int code() const noexcept;

  /// Throws what a done task threw (of several: the first).
  void rethrow() const;

  /// Any thread, of a request: the engine calls MPI_Cancel before it tests it next. No effect on other kinds, and once it is done.
  void cancel() const noexcept;

  /// In a task: `int code = co_await completion;` suspends until done, then returns code() or throws what rethrow() does.
  Awaiter operator co_await() const;

 private:
  friend class Engine;
  friend class HelperThread;
  friend class Runner;
  enum class Kind : std::uint8_t { none, word, time, request, task, all, any };
  struct Group;

  static constexpr base::Time never = base::Time::max();

  Completion(Kind kind, std::shared_ptr<CompletionState> state) noexcept : kind_(kind), state_(std::move(state)) {}
  [[nodiscard]] std::optional<bool> done_by_word() const noexcept {
    if (kind_ == Kind::none) return true;
    if (kind_ != Kind::word) return std::nullopt;
    if (word_->load(std::memory_order_acquire) >= value_) return true;
    return due_ == never ? std::optional(false) : std::nullopt;
  }
  [[nodiscard]] bool done_by_state(Moment& moment) const noexcept;
  /// Not only because time passed.
  [[nodiscard]] bool reached(Moment& moment) const noexcept;
  /// True if a word, a request or a task moved, rather than only time: what the watchdog counts as progress.
  [[nodiscard]] bool advanced() const noexcept;
  [[nodiscard]] bool is_word() const noexcept { return kind_ == Kind::word; }
  /// True if it can become done only through MPI requests and tasks: then there is nothing to poll but MPI.
  [[nodiscard]] bool needs_no_polling() const noexcept;
  /// When that is, of what becomes done by time alone.
  [[nodiscard]] std::optional<base::Time> due() const noexcept;
  [[nodiscard]] const std::vector<Completion>& members() const noexcept;

  Kind kind_ = Kind::none;
  const std::atomic<std::uint64_t>* word_ = nullptr;
  std::uint64_t value_ = 0;
  base::Time due_ = never;  // done then at the latest
  std::shared_ptr<CompletionState> state_;
};

/// The state of a request: where the user's handle is, and where its status goes.
struct RequestState final : CompletionState {
  MPI_Request* request = nullptr;
  MPI_Status* status = nullptr;
  std::atomic<bool> adopted{false};  ///< An engine tests it already.
  std::atomic<bool> unwanted{
      false};  ///< Is to be cancelled, by who tests it: nobody else knows whether the handle is still there.
};

}  // namespace crosslane::engine

#include "engine/task.h"  // the awaiter needs tasks, and they completions
