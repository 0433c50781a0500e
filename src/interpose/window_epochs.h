// The epochs of a window whose ranks share a node (MPI 5.0, section 12.5): which ones this rank is in, and how it waits for the other ranks' part in
// them, told by words that all of them see (share/epoch_words.h), so that no rank waits for another one's host but where MPI says so. It must not know
// accesses, nor what memory the window is of.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"
#include "share/epoch_words.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace crosslane::interpose {

/// One rank's. Threads may lock, access and flush at once; other calls on a window are one thread's at a time, as MPI has it.
class WindowEpochs {
 public:
  explicit WindowEpochs(Process& process);
  ~WindowEpochs();
  WindowEpochs(const WindowEpochs&) = delete;
  WindowEpochs& operator=(const WindowEpochs&) = delete;

  /// Makes MPI's window, whose memory is the words: collective over `comm`, all of whose ranks are on this node, and whose errors are returned. False on
  /// all of them where one has none. To be called before anything else.
  bool open(MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm);
  /// It is the application's from then on, to be freed by it.
  [[nodiscard]] MPI_Win window() const noexcept { return window_; }

  /// Throws Error (rank), naming `call`.
  void check_rank(const char* call, int rank) const;
  /// Throws Error (rma_sync), naming `call`, unless an epoch is open in which this rank may access memory of `target`; or this rank holds a lock of it, or any.
  void check_access(const char* call, int target) const;
  void check_locked(const char* call, std::optional<int> target) const;

  // What follows returns once other ranks have done their part. Accesses of this rank that the call completes are over before it. Each throws Error
  // (rma_sync), naming `call`, where its other half is missing.
  /// `succeeds`: accesses may follow.
  void fence(const char* call, bool succeeds);
  void post(const char* call, MPI_Group origins);
  void start(const char* call, MPI_Group targets);
  void complete(const char* call);
  void end_post(const char* call);
  /// Whether all have completed, in which case it was end_post().
  [[nodiscard]] bool try_end_post(const char* call);
  /// MPI_PROC_NULL is a target, too, whom nobody waits for.
  void lock(const char* call, int target, int lock_type);
  void unlock(const char* call, int target);
  void lock_all(const char* call);
  void unlock_all(const char* call);

  /// While one lives, no other rank or thread is in an accumulating access to memory of that rank.
  class Guard {
   public:
    Guard(WindowEpochs& epochs, const char* call, int target);
    ~Guard() { words_.unguard(target_); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const share::EpochWords& words_;
    const int target_;
  };

 private:
  enum class Locked : std::uint8_t { no, shared, exclusive };

  [[nodiscard]] bool find_words(int me, int ranks);
  [[nodiscard]] std::vector<int> members(const char* call, MPI_Group group) const;
  void await(const char* call, int rank, base::FunctionRef<bool()> done) const;
  void share(const char* call, std::span<const int> targets);
  void exclude(const char* call, int target);
  void release(int target, Locked locked) const noexcept;

  Process& process_;
  MPI_Win window_;
  MPI_Group group_;
  share::EpochWords words_;
  /// In nanoseconds of the clock: until then who waits for all of a lock is not let pass again.
  std::atomic<std::int64_t> polite_from_{0};
  mutable std::mutex mutex_;                          // of what follows
  bool fenced_ = false;                               // accesses may follow the last fence
  std::optional<std::vector<int>> posted_, started_;  // ranks of such an epoch
  bool all_locked_ = false;
  int nobody_locked_ = 0;
  std::vector<Locked> locked_;                         // by target
  std::vector<std::uint64_t> posts_seen_, ends_seen_;  // by target; by origin
};

}  // namespace crosslane::interpose
