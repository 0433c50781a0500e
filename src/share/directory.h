// Directory: what the ranks of a node tell each other in shared memory: who is there, who has seen a GPU, and words for
// flags. Lock-free; what different ranks write lies in different cache lines. It must not know MPI, nor collectives.
//
// States (who may change them, and what holds then). All start at zero, which the new segment is.
//
//   presence of a rank      0 absent -> 1 joined   by that rank, after process, world_rank are written (release)
//                           1 joined -> 2 received by that rank in MPI_Finalize; it waits for no message of others any more (release)
//                           1, 2 -> 3 left         by that rank in MPI_Finalize; it touches the directory no more
//                           a rank in state 1 or 2 whose mark is free has died (Segment::mark_held); the state stays
//   device_seen of a rank   0 -> 1                 by that rank, after its gpu_uuid is written (release); never back
//   device_seen of the node 0 -> 1                 by any rank, before it first uses device memory in a collective
//                                                  (sequentially consistent, see Directory::device_seen); never back
//   waits of a rank         n -> n +- 1            by that rank's threads; a hint: it looks all the time whether asks has grown
//   asks of a rank          n -> n + 1             by others, behind what they want of it (release)
//   words                                          their users define them: each line has one writer at a time
#pragma once

#include "share/segment.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::share {

/// Two cache lines: x86 fetches lines in pairs.
inline constexpr std::size_t line_bytes = 128;

/// One word, alone in its line but for what its writer tells with it.
struct alignas(line_bytes) Line {
  std::atomic<std::uint64_t> word;
  std::array<std::atomic<std::uint64_t>, line_bytes / sizeof(std::uint64_t) - 1> beside;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Line) == line_bytes);

using Uuid = std::array<std::uint8_t, 16>;

enum class Presence : std::uint32_t { absent, joined, received, left };

struct alignas(line_bytes) RankRecord {
  std::atomic<Presence> presence;
  std::atomic<std::uint32_t> device_seen;
  std::int64_t process;  ///< In its own PID namespace.
  std::int32_t world_rank;
  Uuid gpu_uuid;  ///< The GPU that the rank used first; valid once device_seen is 1.
  alignas(line_bytes) std::atomic<std::uint32_t> waits;
  alignas(line_bytes) std::atomic<std::uint64_t> asks;
};

/// How much a directory has: equal on all ranks of the node.
struct Shape {
  int ranks = 1;
  std::size_t lines_per_rank = 64;  ///< Words that a rank publishes to all.
  std::size_t lines_per_pair = 4;   ///< Words from one rank to another.
  std::size_t board_bytes = 0;      ///< For the table of teams (board.h).
  std::size_t ferry_bytes = 0;      ///< Of each rank, for what it asks others for (ferry.h): whole lines.
};

class Directory {
 public:
  [[nodiscard]] static std::size_t bytes_for(const Shape& shape) noexcept;

  /// Over a segment of at least bytes_for(shape), as its rank `local_rank`. The segment's maker and its openers alike.
  Directory(Segment segment, const Shape& shape, int local_rank);

  [[nodiscard]] int ranks() const noexcept { return shape_.ranks; }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] const Segment& segment() const noexcept { return segment_; }
  /// The maker: every rank has it, so that its name can go.
  void forget() noexcept { segment_.forget(); }

  /// This rank is there: called once by each, before the node's first use of the directory is agreed on.
  void join(int world_rank) noexcept;
  /// This rank waits for no message of others any more: called once.
  void have_received() noexcept;
  /// This rank is gone: called once, after its last use.
  void leave() noexcept;

  [[nodiscard]] const RankRecord& record(int local_rank) const noexcept {
    return records_[static_cast<std::size_t>(local_rank)];
  }
  /// In a child of fork(), which is no rank: others are to learn of its parent's end though it goes on.
  void leave_to_parent() noexcept { segment_.leave_marks(); }

  /// False if it is certain that the rank's process has ended without leave(). For reports and bounded waits: a system call.
  [[nodiscard]] bool alive(int local_rank) const noexcept;
  /// A rank that has died, once all that live have received: then the dead alone could want anything of this one. Nothing before. As alive(), of each.
  [[nodiscard]] std::optional<int> only_dead() const noexcept;

  /// A thread of this rank begins to wait in a call that looks all the time whether asks() has grown; and ends that. Any thread.
  void begin_wait() noexcept;
  void end_wait() noexcept;
  /// Whether a thread of that rank does, at this moment.
  [[nodiscard]] bool waits(int local_rank) const noexcept {
    return record(local_rank).waits.load(std::memory_order_relaxed) != 0;
  }

  /// That rank finds that asks() has grown, and then whatever was written before.
  void ask(int local_rank) noexcept;
  /// How often others have done that of this rank.
  [[nodiscard]] std::uint64_t asks() const noexcept { return record(local_rank_).asks.load(std::memory_order_acquire); }

  /// This rank uses GPU memory for the first time: says so for itself and for the node. One thread at a time.
  void see_device(const Uuid& gpu) noexcept;

  /// True once any rank of the node has seen a device. Publish your own record before: between that and this question is a
  /// fence, as there is between see_device() and what its caller reads next. Of two ranks that do so at once, at least one
  /// sees the other (the store-buffer pattern), so that never both go their own way.
  [[nodiscard]] bool device_seen() const noexcept;

  /// The words that `local_rank` publishes.
  [[nodiscard]] std::span<Line> lines(int local_rank) const noexcept;
  /// The words from one rank to another.
  [[nodiscard]] std::span<Line> lines(int from, int to) const noexcept;

  /// Zeroed memory for the table of teams.
  [[nodiscard]] std::span<std::byte> board() const noexcept { return board_; }
  /// Zeroed memory of that rank's ferry.
  [[nodiscard]] std::span<std::byte> ferry(int local_rank) const noexcept;

 private:
  struct alignas(line_bytes) Node {
    std::uint64_t magic;
    std::uint64_t bytes;
    alignas(line_bytes) std::atomic<std::uint32_t> device_seen;
  };

  Segment segment_;
  Shape shape_;
  int local_rank_;
  Node* node_;
  RankRecord* records_;
  Line* rank_lines_;
  Line* pair_lines_;
  std::span<std::byte> board_;
  std::byte* ferries_;
};

}  // namespace crosslane::share
