// Requests: the MPI requests that somebody waits for, tested together. It must not know tasks, nor test from two threads:
// the thread in the engine calls, and MPI's rules for one request in one call are kept.
#pragma once

#include "engine/completion.h"
#include "mpi/functions.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace crosslane::engine {

class Requests {
 public:
  explicit Requests(const mpi::Functions& below) noexcept : below_(below) {}

  /// Any thread: from now on test() looks at it, until it is done or no completion refers to it any more.
  void adopt(std::shared_ptr<RequestState> request);

  /// The thread in the engine: one call of MPI that tests them all, and makes MPI progress. True if one finished.
  bool test();

  /// The thread in the engine: returns once one of them is done, or at once if there is none. Blocks inside MPI.
  void sleep();

  [[nodiscard]] bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

 private:
  using Some = int (*)(int, MPI_Request*, int*, int*, MPI_Status*);
  bool take_adopted();
  void drop_abandoned();
  void cancel_unwanted(std::size_t first);
  bool some(Some call);
  bool test_each(std::size_t first);
  void finish(std::size_t index, int code, const MPI_Status& status) noexcept;
  void erase_finished();

  const mpi::Functions& below_;
  std::atomic<std::size_t> count_{0};  // adopted and not finished

  // Only the thread in the engine. Handles in an array of their own, as MPI wants them.
  std::vector<MPI_Request> handles_;
  std::vector<std::shared_ptr<RequestState>> states_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;

  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<RequestState>> adopted_;
  std::atomic<std::size_t> adopted_count_{0};  // its size, to be read without the mutex
};

}  // namespace crosslane::engine
