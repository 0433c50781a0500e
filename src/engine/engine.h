// The engine of a rank: it runs the rank's tasks, tests its MPI requests, and is the only place that blocks.
// It must not know what tasks do, nor GPUs: a GPU's work is a word to it.
//
// Threads: any may spawn and wait, several may wait at once. One at a time is "in the engine" (it resumes tasks and calls
// MPI); the others look at their own completion and yield. Tasks may spawn and co_await; they must not wait.
#pragma once

#include "base/function_ref.h"
#include "engine/completion.h"
#include "engine/requests.h"
#include "engine/runner.h"
#include "engine/task.h"
#include "engine/watch.h"
#include "mpi/functions.h"
#include "trace/tracer.h"

#include <atomic>
#include <optional>
#include <thread>

namespace crosslane::engine {

/// What to do while only MPI requests are pending.
enum class MpiIdle {
  poll,   ///< MPI_Testsome and a yield: real MPIs spin in their blocking calls, which starves ranks that share a core.
  sleep,  ///< MPI_Waitsome: simulated MPI, where each test costs simulated time. Only below MPI_THREAD_MULTIPLE.
};

class Engine final : private Runner {
 public:
  /// `watchdog_seconds`: after that long without progress a wait is reported; 0 is never.
  Engine(const mpi::Functions& below, double watchdog_seconds, MpiIdle mpi_idle = MpiIdle::poll);
  ~Engine() override;

  /// Any thread, and tasks: starts a task, up to where it first suspends if no thread is in the engine; else that thread starts it before it
  /// leaves. Where there is no memory for it, it throws, and has not.
  Completion spawn(Task<> task);

  /// Returns when the completion is done; `watch` tells the watchdog what for. Throws what a task that it waits for threw.
  /// MPI's verdict on a request is completion.code(). For a word that is there within a few microseconds, and no tasks,
  /// it neither locks nor allocates. Throws Error (intern) when called from inside a task.
  void wait(const Completion& completion, const Watch& watch);

  /// Spawns the task and waits for its end, and never leaves before it once it has begun: it may refer to what its caller has on the stack.
  /// Throws what the task throws; where there is no memory to spawn it, it has not begun. `watch` has no check.
  void run(Task<> task, const Watch& watch);

  /// As wait() for a word, with no turn and no call of MPI meanwhile, for a second: for who is in the middle of something that MPI
  /// had better not progress in. What takes longer waits for more than a copy, and perhaps for MPI.
  void wait_apart(const Completion& completion, const Watch& watch);

  /// True as soon as `done` says so; false if it has not for as long as wait() looks at a word at first, some ten microseconds: then it
  /// is time for turns. `done` makes no calls that block.
  [[nodiscard]] bool soon(base::FunctionRef<bool()> done) const;

  /// Returns when `done` says so; it is asked between turns, and may call MPI. For calls that look at several requests of
  /// the application, which are not the engine's to complete. Throws what `done` throws.
  void until(base::FunctionRef<bool()> done, const Watch& watch);

  /// The same with no turn and no call of MPI meanwhile, however long it takes; from a task, too, which holds up the others. `done` makes no calls
  /// that block.
  void until_apart(base::FunctionRef<bool()> done, const Watch& watch) const;

  /// Any thread: gives tasks and requests one turn, if no other thread does. True if something moved.
  bool progress();

  /// True if there is nothing to give a turn to: no task, and no request that somebody waits for.
  [[nodiscard]] bool idle() const noexcept { return Runner::idle() && requests_.empty(); }

  /// While a wait polls a word and no request is pending, MPI is asked for messages on this communicator now and then:
  /// MPIs progress only inside their calls, and what would change the word may depend on an earlier send of this rank.
  /// Unset by `std::nullopt`, before the communicator is freed.
  void keep_mpi_progressing(std::optional<MPI_Comm> communicator) noexcept;
  /// A thread that may call MPI: asks for such messages now.
  void make_mpi_progress();

  /// More ranks than processors on this machine: waits yield after a few looks at a word. Set while no thread waits.
  void share_processors() noexcept;
  [[nodiscard]] bool shares_processors() const noexcept { return shares_processors_; }

  /// Where waits, and what others do on this engine, are recorded; null (the default) for nowhere. Set before first use.
  void trace_into(trace::Tracer* tracer) noexcept { tracer_ = tracer; }
  [[nodiscard]] trace::Tracer* tracer() const noexcept { return tracer_; }

 private:
  class Inside;
  /// Runs `body` in the engine, if no thread is there.
  template <class Body>
  void enter(Body&& body);
  void adopt(const Completion& completion) override;
  void wait_slowly(const Completion& completion, const Watch& watch);
  bool turn_inside();
  [[nodiscard]] bool may_sleep(const Completion& completion) const;

  const mpi::Functions& below_;
  const double watchdog_seconds_;
  const MpiIdle mpi_idle_;
  bool shares_processors_ = false;
  int spins_;               // looks at a word before a wait does anything else
  unsigned looks_a_yield_;  // of a wait for anything
  trace::Tracer* tracer_ = nullptr;
  Requests requests_;
  std::atomic<std::thread::id> inside_{};  // the thread in the engine
  std::optional<MPI_Comm> poked_;          // set while no thread waits
};

}  // namespace crosslane::engine
