// One word for each pair of ranks (0 and 1, 2 and 3, ...), by which they tell each other something without MPI. It must not know Crosslane.
#pragma once

#include <atomic>
#include <cstddef>

namespace crosslane::tests {

/// In shared memory of one node; all words are 0 at first. The constructor is collective over MPI_COMM_WORLD.
class Words {
 public:
  Words();
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  [[nodiscard]] std::atomic<int>& of(int rank) const noexcept { return words_[rank / 2]; }

 private:
  std::size_t bytes_ = 0;
  std::atomic<int>* words_ = nullptr;
};

}  // namespace crosslane::tests
