// HelperThread: runs tasks while the application sits in an MPI call of its own or computes, started at first device use.
// Its tasks know GPU words and shared memory, never MPI: a task that awaits a request gets an Error (intern).
// After fork() the child has none: spawn throws there, and destroying it is harmless.
#pragma once

#include "engine/completion.h"
#include "engine/task.h"

#include <sys/types.h>

#include <memory>

namespace crosslane::engine {

class HelperThread {
 public:
  /// Starts the thread, with all signals blocked: the application's handlers run on its own threads.
  /// Throws Error (other) if the system refuses.
  HelperThread();
  /// Ends and joins the thread. Tasks that are not finished are destroyed; their completions are done with an error.
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// Any thread: the helper starts the task. Wait for its completion with Engine::wait, or co_await it in any task.
  Completion spawn(Task<> task);

 private:
  class Body;
  std::unique_ptr<Body> body_;
  pid_t process_;
};

}  // namespace crosslane::engine
