// Shape: what is equal on all ranks of a collective call, and so all that the choice of an algorithm may see besides the team's
// facts. It must not know MPI's handles, nor any rank's buffers.
#pragma once

#include "kernel/catalogue.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace crosslane::collective {

enum class Collective : std::uint8_t {
  allreduce,
  reduce,
  broadcast,
  allgather,
  reduce_scatter_block,
  alltoall,
  gather,
  scatter,
  scan,
  exscan,
  allgatherv,
  gatherv,
  scatterv,
  alltoallv,
  reduce_scatter,
  barrier,
};
inline constexpr std::size_t collective_count = 16;
[[nodiscard]] std::string_view name_of(Collective collective) noexcept;

/// True for those that combine elements; the others move bytes.
[[nodiscard]] constexpr bool combines(Collective collective) noexcept {
  switch (collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::reduce_scatter_block:
    case Collective::reduce_scatter:
    case Collective::scan:
    case Collective::exscan:
      return true;
    default:
      return false;
  }
}

/// True where a rank has a block for each rank: its send buffer holds one a member, in their order.
[[nodiscard]] constexpr bool sends_blocks(Collective collective) noexcept {
  return collective == Collective::scatter || collective == Collective::alltoall ||
         collective == Collective::reduce_scatter_block || collective == Collective::scatterv ||
         collective == Collective::alltoallv || collective == Collective::reduce_scatter;
}

/// True where a rank gets a block from each rank: its receive buffer holds one a member, in their order.
[[nodiscard]] constexpr bool receives_blocks(Collective collective) noexcept {
  return collective == Collective::gather || collective == Collective::allgather ||
         collective == Collective::alltoall || collective == Collective::gatherv ||
         collective == Collective::allgatherv || collective == Collective::alltoallv;
}

/// True where blocks may differ in size, and lie anywhere in a rank's buffer: each rank has Pieces (plan.h).
[[nodiscard]] constexpr bool uneven(Collective collective) noexcept {
  switch (collective) {
    case Collective::allgatherv:
    case Collective::gatherv:
    case Collective::scatterv:
    case Collective::alltoallv:
    case Collective::reduce_scatter:
      return true;
    default:
      return false;
  }
}

/// True where a rank knows only the sizes of the blocks that it sends and receives itself. What is to be equal on all ranks may
/// then depend on no size, until all have shown theirs.
[[nodiscard]] constexpr bool sizes_are_private(Collective collective) noexcept {
  return collective == Collective::gatherv || collective == Collective::scatterv || collective == Collective::alltoallv;
}
/// Of a shape whose sizes nobody knows all of: larger than any.
inline constexpr std::size_t unknown_bytes = std::numeric_limits<std::size_t>::max();

/// True if combining elements in another order gives the same bits: whole numbers.
[[nodiscard]] constexpr bool exact(kernel::Element element) noexcept {
  using kernel::Element;
  switch (element) {
    case Element::i8:
    case Element::u8:
    case Element::i16:
    case Element::u16:
    case Element::i32:
    case Element::u32:
    case Element::i64:
    case Element::u64:
    case Element::i16_i32:
    case Element::i32_i32:
    case Element::i64_i32:
      return true;
    default:
      return false;
  }
}

struct Shape {
  Collective collective = Collective::allreduce;
  /// Of one block: all that a rank contributes (allreduce, reduce, broadcast, allgather, gather, scan, exscan) or what goes from
  /// one rank to one other (alltoall, scatter, reduce_scatter_block). The largest one where they differ; unknown_bytes where that is
  /// private and was not shown.
  std::size_t bytes = 0;
  bool even = true;                               ///< Of a reduce_scatter: all blocks are of that size.
  kernel::Element element = kernel::Element::u8;  ///< Where elements are combined.
  kernel::Op op = kernel::Op::sum;                ///< The same.
  int root = 0;                                   ///< Where there is one.

  /// Whether a block goes from one member to another, or to itself, where bytes are moved.
  [[nodiscard]] constexpr bool goes(int from, int to) const noexcept {
    switch (collective) {
      case Collective::broadcast:
        return from == root && to != root;
      case Collective::scatter:
        return from == root;
      case Collective::gather:
        return to == root;
      default:
        return true;
    }
  }

  [[nodiscard]] std::size_t count() const noexcept { return bytes / kernel::bytes_of(element); }
};

/// What a call's algorithm may depend on besides its shape: equal on all members.
struct TeamFacts {
  int members = 1;
  int most_on_one_gpu = 1;     ///< Members that share a GPU, where most do.
  unsigned blocks = 128;       ///< Thread blocks that the call may keep on a GPU, of all members that share it.
  bool emulated = false;       ///< Blocks of kernels are threads of this machine.
  bool exposed = false;        ///< Every member's buffers of this call can be mapped by the others.
  bool large_windows = false;  ///< Every member has mapped all others' windows for large reductions.
  bool told = false;           ///< Kernels tell each other which buffers that all have mapped the members use, if any.
  bool spinning = true;        ///< Kernels may wait for other members' kernels; not where they take turns on a GPU.
  bool whole_lines = true;     ///< Lines of 128 bytes come to other members' GPUs at once.
  bool driven = false;         ///< Streams can wait for all other members' events, as host-driven algorithms need it.
  bool deterministic = false;  ///< Reductions must give the same bits whatever the algorithm.
};

}  // namespace crosslane::collective
