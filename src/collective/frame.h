// What all kernels of a team are given alike. It must not know any algorithm.
#pragma once

#include "collective/plan.h"
#include "kernel/move.h"
#include "kernel/team.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace crosslane::collective {

[[nodiscard]] kernel::Frame frame_of(const team::TeamView& team, const Report& report);

/// Blocks for kernels that move so many bytes through each member, `bytes_a_block` each, and at most `most`: more only get in
/// each other's way on the links. Fewer where members share a GPU, for all of them must be resident together. Equal on all members.
[[nodiscard]] unsigned blocks_for(const TeamFacts& facts, std::size_t bytes, std::size_t bytes_a_block,
                                  std::size_t most);

/// The same for kernels that read so many bytes from all peers at once: reads get in each other's way sooner than writes do.
[[nodiscard]] unsigned pulling_blocks(const TeamFacts& facts, std::size_t bytes);

/// Of equal chunks of each block's share of so many bytes, at most `most` bytes each: whole lines, and a multiple of `round` chunks. As few
/// as may be.
[[nodiscard]] std::size_t chunk_of(std::size_t bytes, unsigned blocks, std::size_t most,
                                   std::size_t round = 1) noexcept;

[[nodiscard]] TeamFacts facts_of(const team::TeamView& team);

/// Whether `taker` wants what `owner` combines for all: of an all-reduce, a reduce, or a reduce-scatter.
[[nodiscard]] inline bool takes_result(const Shape& shape, int owner, int taker) noexcept {
  if (shape.collective == Collective::reduce) return taker == shape.root;
  return shape.collective == Collective::allreduce || taker == owner;
}

[[nodiscard]] inline std::uint64_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// A piece of this rank's buffers, as kernels that move between members are told of it.
[[nodiscard]] inline kernel::Move move_from(const Buffers& mine, const Pieces::Piece& piece) noexcept {
  return {address_of(mine.send) + piece.offset, 0, piece.bytes};
}
[[nodiscard]] inline kernel::Move move_to(const Buffers& mine, const Pieces::Piece& piece) noexcept {
  return {0, address_of(mine.receive) + piece.offset, piece.bytes};
}

/// `shape`'s elements shared among the members for a two-shot reduction: whole vectors of 16 bytes where there are enough, and whole lines
/// where there are many.
class Shards {
 public:
  Shards(const Shape& shape, int members) noexcept;
  [[nodiscard]] std::size_t offset(int member) const noexcept;
  [[nodiscard]] std::size_t bytes(int member) const noexcept { return offset(member + 1) - offset(member); }

 private:
  std::size_t each_;
  std::size_t all_;
};

/// The same among the members but the root, which has enough to do with all that it sends or receives.
class SharesOfOthers {
 public:
  SharesOfOthers(const Shape& shape, int members) noexcept
      : shards_(shape, std::max(members - 1, 1)), root_(shape.root) {}
  [[nodiscard]] std::size_t offset(int member) const noexcept { return shards_.offset(index(member)); }
  [[nodiscard]] std::size_t bytes(int member) const noexcept {
    return member == root_ ? 0 : shards_.bytes(index(member));
  }

 private:
  [[nodiscard]] int index(int member) const noexcept { return member > root_ ? member - 1 : member; }
  Shards shards_;
  int root_;
};

/// Which bytes of a vector `member` combines, first and how many: of an all-reduce a share; of a reduce, among two members the root all, else
/// each of the others a share.
[[nodiscard]] std::pair<std::size_t, std::size_t> share_of(const Shape& shape, int members, int member) noexcept;

}  // namespace crosslane::collective
