// What the ranks of a node tell each other of one window for one-sided communication (MPI 5.0, section 12.5): who may access whose memory, and when.
// Words in memory that all of them see, a part of it each rank's. Lock-free, and nothing here waits. It must not know MPI, nor accesses.
//
// States (who may change them, and what holds then), in the part of each rank t; all start at zero.
//
//   lock       0 free <-> n shared holders     by holders, compare-and-swap (acquire); release when they let it go
//              0 free <-> exclusive            the same
//   waiting    n <-> n +- 1                    by who waits to have the lock alone: who wants to share it lets it pass, for a while
//   guard      0 free <-> 1 held               by who is in an accumulating access to memory of t: each is atomic as a whole
//   fences     n -> n + 1                      by t, when it comes to a fence and its accesses are complete (release)
//   posts[o]   n -> n + 1                      by t, when it posts to o (release); o starts an epoch for each
//   ends[o]    n -> n + 1                      by o, when it completes such an epoch, and its accesses are complete (release); t waits for each
//
// Who finds what is asked for has acquired: all that was written before it is told is there to be read.
#pragma once

#include "share/directory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::share {

/// One rank's view. Thread-safe.
class EpochWords {
 public:
  /// Of a part, wherever it begins.
  [[nodiscard]] static std::size_t bytes_for(int ranks) noexcept;

  EpochWords() = default;
  /// Of rank `me`, over the parts of all ranks, by rank, wherever they are in this process. This rank's becomes zero: before any rank uses it,
  /// all must have come so far.
  EpochWords(const std::vector<std::byte*>& parts, int me);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(parts_.size()); }

  // The lock of a rank's memory. False where somebody has it so that this one cannot; who waits to have it alone says so.
  [[nodiscard]] bool try_share(int target) const noexcept;
  [[nodiscard]] bool try_exclude(int target) const noexcept;
  void stop_sharing(int target) const noexcept { of(target).lock.fetch_sub(1, std::memory_order_release); }
  void stop_excluding(int target) const noexcept { of(target).lock.fetch_sub(alone, std::memory_order_release); }
  void begin_waiting(int target) const noexcept { of(target).waiting.fetch_add(1, std::memory_order_relaxed); }
  void end_waiting(int target) const noexcept { of(target).waiting.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool waited_for(int target) const noexcept {
    return of(target).waiting.load(std::memory_order_relaxed) != 0;
  }

  // The guard of a rank's memory.
  [[nodiscard]] bool try_guard(int target) const noexcept;
  void unguard(int target) const noexcept { of(target).guard.store(0, std::memory_order_release); }

  // Fences, the first of which is 1.
  /// This rank comes to its next one, whose number is returned. One thread at a time.
  std::uint64_t come_to_fence() const noexcept;
  [[nodiscard]] bool is_at_fence(int rank, std::uint64_t number) const noexcept {
    return of(rank).fences.load(std::memory_order_acquire) >= number;
  }

  // Posts to an origin, and their ends. How often each was told, from 1.
  void post(int origin) const noexcept { between(me_, origin).posts.fetch_add(1, std::memory_order_release); }
  [[nodiscard]] bool is_posted(int target, std::uint64_t number) const noexcept {
    return between(target, me_).posts.load(std::memory_order_acquire) >= number;
  }
  void complete(int target) const noexcept { between(target, me_).ends.fetch_add(1, std::memory_order_release); }
  [[nodiscard]] bool is_complete(int origin, std::uint64_t number) const noexcept {
    return between(me_, origin).ends.load(std::memory_order_acquire) >= number;
  }

 private:
  struct alignas(line_bytes) Rank {
    std::atomic<std::uint64_t> lock;
    alignas(line_bytes) std::atomic<std::uint64_t> waiting;
    alignas(line_bytes) std::atomic<std::uint64_t> guard;
    alignas(line_bytes) std::atomic<std::uint64_t> fences;
  };
  struct alignas(line_bytes) Pair {
    std::atomic<std::uint64_t> posts;
    alignas(line_bytes) std::atomic<std::uint64_t> ends;
  };
  struct Part {
    Rank* rank;
    Pair* pairs;  // by origin
  };
  static constexpr std::uint64_t alone = std::uint64_t{1} << 63;

  [[nodiscard]] Rank& of(int rank) const noexcept { return *parts_[static_cast<std::size_t>(rank)].rank; }
  [[nodiscard]] Pair& between(int target, int origin) const noexcept {
    return parts_[static_cast<std::size_t>(target)].pairs[origin];
  }

  std::vector<Part> parts_;
  int me_ = 0;
};

}  // namespace crosslane::share
