// A word that all ranks of a node see, without MPI's help.
#pragma once

#include "support/check.h"

#include <mpi.h>

#include <atomic>

namespace crosslane::tests {

/// Of the world's ranks, which share a node. Made and freed by all of them.
class SharedWord {
 public:
  explicit SharedWord(int rank) {
    void* base = nullptr;
    CROSSLANE_MPI(MPI_Win_allocate_shared(rank == 0 ? sizeof(std::atomic<int>) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                          static_cast<void*>(&base), &window_));
    MPI_Aint bytes = 0;
    int unit = 0;
    CROSSLANE_MPI(MPI_Win_shared_query(window_, 0, &bytes, &unit, static_cast<void*>(&base)));
    word_ = static_cast<std::atomic<int>*>(base);
    if (rank == 0) word_->store(0);
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  ~SharedWord() { MPI_Win_free(&window_); }
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;
  [[nodiscard]] std::atomic<int>& operator*() const noexcept { return *word_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::atomic<int>* word_ = nullptr;
};

}  // namespace crosslane::tests
