// The requests that carry an operation of ours: the user holds the MPI's own request, and this table knows which host
// copies hang on it. It must not know MPI's calls: completion.cpp asks the MPI, this keeps the books.
#pragma once

#include "base/function_ref.h"
#include "base/light_mutex.h"
#include "base/recycler.h"
#include "engine/watch.h"
#include "interpose/argument.h"
#include "interpose/handle_table.h"
#include "interpose/look.h"
#include "interpose/target.h"
#include "mpi/abi.h"
#include "mpi/functions.h"
#include "mpi/narrowed.h"
#include "team/communicators.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::interpose {

class Starter;
class Undertaking;

/// What a call with GPU memory needs until it is complete.
struct Operation {
  Operation();
  ~Operation();  // where undertakings are known

  const char* call = "";
  Target target;                                          // whom its errors are raised on
  std::shared_ptr<team::CommunicatorFacts> communicator;  // null without one, or of a session
  team::Communicators* communicators = nullptr;           // not null with `communicator`
  std::uint64_t sequence = 0;                             // the call's number on the communicator
  bool of_session = false;  // its communicator is a session's, which may outlive MPI_Finalize
  std::list<Argument, base::RecyclingAllocator<Argument>> arguments;
  std::vector<std::vector<MPI_Count>> arrays;  // arrays that the MPI may read until completion
  mpi::Narrowed narrowed;                      // the same for an MPI without large counts
  bool persistent = false;
  std::atomic<bool> active{false};  // between start and completion
  bool delivered = false;   // results were copied out before the request is completed: by a query, or with others
  bool completing = false;  // with one thread: a call that completes it looks at it
  bool one_sided = false;   // of one with a request: calls on its window complete it, too, perhaps on another thread
  struct Got {
    MPI_Win window;
    int target;
  };
  std::optional<Got>
      got_early;          // by such a one: its request may be complete before the data has come, and the window tells
  std::mutex delivering;  // who copies the results of such a one out; the other waits
  std::mutex handling;    // who looks at it, completes it or cancels it: several threads may have its request

  std::unique_ptr<Look> look;                // of a receive on a rank that looks at what it receives
  std::unique_ptr<Undertaking> undertaking;  // of what is under way without MPI

  std::unique_ptr<Starter> starter;  // of a persistent one that MPI need not carry out

  // Partitioned communication: the bytes of a partition, and which ones MPI_Parrived has delivered since the start. They are the
  // application's from then on, which may have changed them.
  std::size_t partition_bytes = 0;
  std::vector<bool> arrived;

  std::function<void()> when_complete;  // called once, and must not throw; of what makes more than bytes

  /// MPI alone does not know whether it is complete; while active.
  [[nodiscard]] bool looks() const noexcept { return look || undertaking; }
  /// Of such a one: MPI has completed it, or it ends here.
  [[nodiscard]] bool ready() const noexcept;
  /// Of such a one: it is complete without MPI's call.
  [[nodiscard]] bool ends_here() const noexcept;

  [[nodiscard]] bool receives() const noexcept;
  /// What its buffers hold in GPU memory.
  [[nodiscard]] std::size_t bytes_on_gpu() const noexcept;
  /// Learns about the target's communicator and numbers the call on it. `known` is null outside of a world.
  void place(team::Communicators* known);
  /// Whom an error is raised on now: the application may have freed the communicator of an operation under way.
  [[nodiscard]] Target raised_on() const noexcept;
  /// For the watchdog; refers to this object. Costs a few stores: words are found when there is something to report.
  [[nodiscard]] engine::Watch watch() const noexcept;
  /// Lends host copies to all arguments.
  void stage(lane::Copier& copier, Argument::Staging staging = Argument::Staging::pinned);
  /// Before it starts again: see Argument.
  void throw_if_gone() const;
  /// Copies all that is read to the host, and returns when it is there.
  void fetch(lane::Copier& copier, lane::Batch::Mpi mpi = lane::Batch::Mpi::progresses);
  /// Copies all that was written to the GPU, once, and returns when it is there. `status` tells how much a receive wrote;
  /// null where there is none.
  void deliver(lane::Copier& copier, const MPI_Status* status, const mpi::Functions& below);
  /// The same as part of a batch: it is there when the batch is waited for.
  void deliver(lane::Batch& batch, const MPI_Status* status, const mpi::Functions& below);
  /// Copies one partition that has arrived to the GPU, once, and returns when it is there. The caller holds `handling`.
  void deliver_partition(lane::Copier& copier, std::size_t partition);
};

/// What the watchdog says of who waits for a message, and of who waits for its receiver: whom to look at.
[[nodiscard]] std::string waits_for_message(int source, int tag);
[[nodiscard]] std::string waits_for_receiver(int dest, int tag);

/// A wait of which the operation does not know what it waits for. `details` is asked when there is something to report; it, and this, must
/// outlive the watch.
struct Waiting {
  const Operation& operation;
  base::FunctionRef<std::string()> details;
  [[nodiscard]] engine::Watch watch() const noexcept;
};

[[nodiscard]] inline std::shared_ptr<Operation> make_operation() {
  return std::allocate_shared<Operation>(base::RecyclingAllocator<Operation>{});
}

/// Thread-safe. Where there are other threads a completion call takes an operation out before it asks the MPI, since the MPI may hand the same
/// request value to another thread as soon as it has completed; but not a persistent one, whose request stays: other
/// threads may announce its partitions meanwhile. Nor what MPI alone does not know to be complete: they may ask for it meanwhile, or cancel it.
class Requests {
 public:
  /// Neither operations with requests nor freed ones that still go on.
  [[nodiscard]] bool empty() const noexcept { return operations_.empty() && !any_adopted(); }
  /// Some of the latter.
  [[nodiscard]] bool any_adopted() const noexcept { return adopted_size_.load(std::memory_order_acquire) != 0; }

  void add(MPI_Request request, std::shared_ptr<Operation> operation) {
    operations_.put(request, std::move(operation));
  }
  /// The operation of this request, which leaves the table; null for a request that is not ours.
  [[nodiscard]] std::shared_ptr<Operation> take(MPI_Request request) { return operations_.take(request); }

  /// The same without taking it out: for calls that complete nothing, several threads at a time.
  [[nodiscard]] std::shared_ptr<Operation> find(MPI_Request request) const { return operations_.find(request); }

  /// The same of each of these that is not null: f(index, operation). f must not use the table.
  template <class F>
  void find_each(const MPI_Request requests[], int count, MPI_Request none, const F& f) const {
    operations_.find_each(requests, count, none, f);
  }

  /// For calls that complete it, with several threads. What stays in the table is to be dropped before its request is free.
  [[nodiscard]] std::shared_ptr<Operation> take_to_complete(MPI_Request request) {
    auto operation = find(request);
    const bool stays = operation && (operation->persistent || operation->looks());
    return operation && !stays ? take(request) : operation;
  }

  /// The MPI has freed the request of this operation, and may have given the value to another one by now.
  void drop(MPI_Request request, const std::shared_ptr<Operation>& operation) { operations_.drop(request, operation); }

  /// The MPI has given an operation another request: Open MPI does so when a persistent send starts again while its last
  /// message is still on its way.
  void rename(MPI_Request before, MPI_Request after);

  /// Some of the receives that are looked at and not ready, with their requests, but for those that a call completes: others each time. The table keeps
  /// them. For one thread at a time.
  [[nodiscard]] std::vector<std::pair<MPI_Request, std::shared_ptr<Operation>>> some_looks();

  /// Where a call that wants any of several requests begins: each elsewhere, so that all get their looks.
  [[nodiscard]] std::size_t next_turn() noexcept { return turns_.fetch_add(1, std::memory_order_relaxed); }

  /// Requests that MPI never completes by itself, to stand for operations, while nobody has them. False: there is none.
  [[nodiscard]] bool lend_idle(MPI_Request* request);
  void take_back_idle(MPI_Request request);

  /// Keeps an active operation whose request the user freed until the MPI completes it.
  void adopt(MPI_Request request, std::shared_ptr<Operation> operation);

  using Adopted = std::list<std::pair<MPI_Request, std::shared_ptr<Operation>>>;
  /// Some of these, which no other thread has then, to be looked at (Process::settle); what is left of them is given back.
  class Hand {
   public:
    /// Whether others can wait for the end of that, as it waits for nothing that they might have to do.
    enum class Time : std::uint8_t { brief, any };
    Hand(Requests& requests, base::FunctionRef<bool(const Operation&)> wanted, Time time);
    ~Hand();
    Hand(const Hand&) = delete;
    Hand& operator=(const Hand&) = delete;

    /// Of those that stay `done` says false.
    void each(base::FunctionRef<bool(MPI_Request, const std::shared_ptr<Operation>&)> done);

   private:
    Requests& requests_;
    const Time time_;
    Adopted mine_;
    std::size_t done_ = 0;
  };
  /// Other threads have some for a brief time, of which they may make an end that the application already knows of.
  [[nodiscard]] bool in_other_hands() const noexcept { return hands_.load(std::memory_order_acquire) != 0; }

 private:
  HandleTable<MPI_Request, Operation> operations_;
  std::atomic<std::size_t> adopted_size_{0};  // with those in hands
  std::atomic<std::size_t> hands_{0};
  std::atomic<std::size_t> turns_{0};
  std::size_t looked_until_ = 0;
  mutable base::LightMutex mutex_;  // of what follows
  Adopted adopted_;
  std::vector<MPI_Request> idle_;
};

}  // namespace crosslane::interpose
