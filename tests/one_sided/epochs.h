// Random epochs of every kind of synchronisation on one window, within what MPI 5.0, section 12.7, allows in the separate memory model.
// It must not know Crosslane.
#pragma once

#include "one_sided/access.h"
#include "one_sided/side.h"

#include <string>
#include <vector>

namespace crosslane::tests {

enum class EpochKind { fences, post_start, locks, lock_all, tickets };

class Epochs {
 public:
  /// `all` gives the same choices on all ranks, `mine` this rank's.
  Epochs(Side& side, Random all, Random mine, std::string text);

  void run(EpochKind kind);
  /// The last accesses to the window's memory before it is freed.
  void last();

 private:
  void fences();
  void post_start();
  void locks();
  void lock_all();
  void read_others();
  void tickets();

  void local_accesses();
  void view_by_lock();
  void show_by_lock();
  void under_lock(Access& access, const std::vector<int>& targets, bool exclusive);
  void own_under_lock();
  void flush(Access& access, const std::vector<int>& targets);
  [[nodiscard]] std::vector<bool> some_ranks(unsigned percent);
  [[nodiscard]] MPI_Group group_of(const std::vector<int>& ranks) const;
  void fence(int assertion, const std::string& text);
  void wait();
  void barrier(const std::string& text);
  [[nodiscard]] bool only_read(int rank) const { return only_read_[static_cast<std::size_t>(rank)]; }

  Side& side_;
  Random all_, mine_;
  std::string text_;
  Agreed agreed_;
  std::vector<bool> only_read_;  ///< Windows that nobody changes for now.
};

}  // namespace crosslane::tests
