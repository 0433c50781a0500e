// Windows of which some memory is on a GPU, and one-sided accesses whose origin buffers are (MPI 5.0, section 12): what is to
// happen at the calls that complete the accesses or synchronise the windows. It must not know which calls those are.
#pragma once

#include "base/function_ref.h"
#include "interpose/handle_table.h"
#include "interpose/route.h"
#include "interpose/shadow.h"
#include "mpi/abi.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// Thread-safe.
class Window {
 public:
  /// This rank's memory in it is the CPU's, or none.
  Window() = default;
  /// It is GPU memory; this rank is number `me` in it.
  Window(std::unique_ptr<Shadow> shadow, int me) : shadow_(std::move(shadow)), me_(me) {}

  [[nodiscard]] const Shadow* shadow() const noexcept { return shadow_.get(); }
  [[nodiscard]] bool is_me(int rank) const noexcept { return rank == me_; }

  /// This access to memory of that rank has begun.
  void began(int target, std::shared_ptr<Operation> operation);
  /// MPI has completed, on this rank at least, those to that rank's memory, or all: results are copied out, host copies given back.
  /// Throws what the GPU reports.
  void complete(Process& process, std::optional<int> target);

  /// Shadow's, where there is one.
  void publish(const char* call);
  void acquire(const char* call);

 private:
  struct Access {
    int target;
    std::shared_ptr<Operation> operation;
  };
  const std::unique_ptr<Shadow> shadow_;
  const int me_ = -1;
  std::mutex mutex_;  // of the shadow's use, and of what follows
  std::vector<Access> accesses_;
};

using Windows = HandleTable<MPI_Win, Window>;

/// One-sided accesses to memory of rank `target`: in and call now; out when the window completes it, or its request before.
int access(Route& route, MPI_Win win, int target, Route::Starting invoke);
int access(Route& route, MPI_Win win, int target, MPI_Request* request, Route::Starting invoke);

}  // namespace crosslane::interpose
