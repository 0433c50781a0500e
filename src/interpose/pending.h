// The requests of one call that completes or queries them that are ours, and what each of them needs before and after MPI
// is asked. It must not know which call it is, but for messages.
#pragma once

#include "engine/watch.h"
#include "interpose/process.h"
#include "interpose/route.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// True if the call cannot concern a request that Crosslane keeps books of: it is one of our own, or there is none.
[[nodiscard]] inline bool nothing_ours(const Site& site) { return !site.outer() || site.process().requests().empty(); }

/// The statuses that a call fills: the user's, or our own where the user ignores them.
class Statuses {
 public:
  Statuses(MPI_Status* users, int count)
      : own_(users == mpi::statuses_ignore() || users == mpi::status_ignore()
                 ? static_cast<std::size_t>(std::max(count, 1))
                 : 0),
        statuses_(own_.empty() ? users : own_.data()) {}
  [[nodiscard]] MPI_Status* data() noexcept { return statuses_; }
  [[nodiscard]] MPI_Status& operator[](int index) const { return statuses_[index]; }

 private:
  std::vector<MPI_Status> own_;
  MPI_Status* statuses_;
};

class Pending {
 public:
  enum class Purpose {
    completion,  ///< With several threads those are out of the table meanwhile that MPI may complete.
    query,       ///< Other threads may query the same ones.
  };
  Pending(const Site& site, const char* call, const MPI_Request requests[], int count, Target& blamed,
          Purpose purpose = Purpose::completion);
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  /// What was not completed goes back.
  ~Pending();

  [[nodiscard]] bool none() const noexcept { return operations_.empty(); }
  /// One of them is active, and MPI alone does not know whether it is complete: a receive that is looked at, or an undertaking.
  [[nodiscard]] bool looks() const noexcept;
  /// One of them is persistent, active or not.
  [[nodiscard]] bool any_persistent() const noexcept;
  /// Request `index` is ours and active.
  [[nodiscard]] bool active(int index) const {
    const auto& operation = operations_[static_cast<std::size_t>(index)];
    return operation && (!operation->persistent || operation->active);
  }

  /// The call waits as Engine::until() does, which gives the engine its turns.
  void leave_turns_to_wait() noexcept;
  enum class Until { all, first };
  /// Looks at every such one; in a call that waits at no more than a few messages that MPI has yet to receive, and of very many at some, and at
  /// others the next time. Or until the first that ends here, where nothing is to be begun for others meanwhile. True if all are ready: an
  /// ordinary message that MPI has completed, a fetched payload, an undertaking that is over. What the functions below say is what was found
  /// here: other threads' queries get on with them meanwhile.
  bool advance(Until until = Until::all);
  /// Those of which it has found that they end here since this was asked last.
  [[nodiscard]] std::vector<int> take_over() noexcept;
  /// It is ready, and end() completes it without MPI's call.
  [[nodiscard]] bool ends_here(int index) const;
  /// And nothing of it is left then, so that it may be completed before the others are ready: it is not persistent.
  [[nodiscard]] bool may_end_early(int index) const;
  /// Completes it. Returns its error code; the status may be ignored. What went wrong is for raise_failures().
  int end(int index, MPI_Request* request, MPI_Status* status);

  /// MPI's call, of requests that it may complete. What the application's error handler throws out of it is for raise_failures(): it counts as
  /// an error that the statuses tell of.
  template <class Call>
  int ask_mpi(Call&& call) {
    try {
      return call();
    } catch (...) {
      mpi_threw_ = true;
      fail(Target::self());
      return mpi::err_in_status;
    }
  }
  /// That has happened; then MPI has completed a request only where it is_gone(): nothing else tells.
  [[nodiscard]] bool mpi_threw() const noexcept { return mpi_threw_; }
  /// It was completed by a call of MPI's that was to complete it: its handle is null now, or inactive.
  [[nodiscard]] bool is_gone(int index, MPI_Request handle) const;
  /// What went wrong goes to the error handlers, which may throw, in the order in which it was met. Before that all that is complete is where it
  /// belongs.
  void raise_failures();

  /// MPI may complete those now that are ready and do not end here: none of these is known any more, if it is not persistent.
  void leave_ready_to_mpi();
  /// The same, and the requests as it may: without those that are not ready, or that end here.
  [[nodiscard]] std::vector<MPI_Request> visible(const MPI_Request requests[]);
  /// What MPI made of them.
  void copy_back(const std::vector<MPI_Request>& handles, MPI_Request requests[]) const;
  /// True if MPI has told of an error of a request in `handles`, which visible() gave, without completing it: the request
  /// is still there. Of persistent ones that says nothing.
  [[nodiscard]] bool left_alone(const MPI_Request requests[], const std::vector<MPI_Request>& handles,
                                const Statuses& statuses) const;
  /// The requests that are not ours.
  [[nodiscard]] std::vector<MPI_Request> others(const MPI_Request requests[]) const;

  /// What MPI has completed with these statuses, each a success: what they received is delivered, all of it in one wait, so that completed()
  /// has nothing left to deliver. Where the GPU refuses that, completed() meets it again, one by one.
  void deliver(const std::vector<int>& indices, const Statuses& statuses) noexcept;
  /// MPI has completed request `index` with this code: delivers what it received, and hands the code on, or that of what went wrong, which is
  /// for raise_failures(); a persistent one becomes inactive and stays known. No effect on what is not ours.
  int completed(int index, const MPI_Status* status, int code);

  /// As MPI_Request_get_status.
  int query(int index, MPI_Request request, int* flag, MPI_Status* status);

  /// What is waited for: the first that is not ready.
  [[nodiscard]] engine::Watch watch() noexcept;
  /// What watch() has told of is complete, and gone.
  [[nodiscard]] bool watch_is_over() const noexcept { return watched_ < operations_.size() && !operations_[watched_]; }

 private:
  enum class Found { nothing, unready, ready, over };
  class Pass;
  [[nodiscard]] bool takes_out() const noexcept;
  [[nodiscard]] bool completes_alone() const noexcept;
  [[nodiscard]] Operation* look_at(int index) const;
  [[nodiscard]] static Found state_of(const Operation& operation);
  [[nodiscard]] bool hidden(int index) const;
  void release(int index);
  /// In a catch block. The code of what is being handled.
  int fail(const Target& target);

  Process& process_;
  const mpi::Functions& functions_;
  const char* call_;
  Target& blamed_;               // whom errors are raised on from now on
  const MPI_Request* requests_;  // the application's, where completion leaves null handles
  const Purpose purpose_;
  std::vector<std::shared_ptr<Operation>> operations_;
  int receives_ = 0;          // of these
  bool awaits_mpi_ = false;   // one of these did when this was made
  std::vector<Found> found_;  // by advance(); what is ready stays so
  bool listed_ = false;
  std::vector<int> open_;          // once listed: what is looked at, and was not found ready yet; in order
  std::vector<int> over_;          // for take_over()
  int next_ = 0, next_other_ = 0;  // where advance() begins
  bool waits_ = false;
  std::vector<MPI_Request> handles_;
  std::size_t watched_ = 0;   // by watch()
  std::uint64_t events_ = 0;  // passes that found some no longer open
  struct Failure {
    Target target;
    std::exception_ptr what;
  };
  std::vector<Failure> failures_;
  bool mpi_threw_ = false;
};

}  // namespace crosslane::interpose
