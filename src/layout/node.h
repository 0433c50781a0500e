// The tree that a datatype becomes: runs of bytes, repeated and listed, in the order in which MPI packs them.
// Equal layouts written differently mostly become equal trees: adjacent runs are joined and regular lists become loops.
// It must not know MPI: decode.cpp builds these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace crosslane::layout {

struct Node;
using NodePointer = std::shared_ptr<const Node>;

/// One run of a list: where it starts, and the bytes packed before it. Its length reaches to the next one's `packed`.
struct Run {
  std::int64_t offset;
  std::size_t packed;
};

/// A node placed at an offset. Nodes are shared: a structure that names one type a thousand times keeps it once.
struct Part {
  std::int64_t offset;
  std::size_t packed;
  NodePointer node;
};

/// What all runs of a node have in common, before runs that touch are joined.
struct RunFacts {
  std::uint64_t divisor = 0;    ///< of every run's length
  std::uint64_t alignment = 0;  ///< a power of two that divides the divisor and all distances from the lowest byte
};

/// Immutable. Offsets are bytes from the buffer's address and may be negative.
struct Node {
  enum class Kind : std::uint8_t {
    empty,     ///< no bytes
    block,     ///< `size` bytes at `low`
    loop,      ///< `count` times `child`, each `stride` bytes after the one before
    runs,      ///< `list`, with a last entry that only ends the one before
    sequence,  ///< `parts`, one after another
  };
  Kind kind = Kind::empty;
  std::size_t size = 0;         ///< bytes packed
  std::int64_t low = 0;         ///< lowest byte touched
  std::int64_t high = 0;        ///< one past the highest byte touched
  std::uint64_t run_count = 0;  ///< runs before joining across repetitions; saturates

  std::uint64_t count = 0;
  std::int64_t stride = 0;
  NodePointer child;
  std::vector<Run> list;
  RunFacts facts;  ///< of `list`, found while it is made: a million runs are not gone through for each question
  std::vector<Part> parts;
};

/// True if both touch the same bytes in the same order, as their trees tell: equal layouts in different trees may differ.
[[nodiscard]] bool equal(const Node& a, const Node& b) noexcept;
/// The same for equal trees. Of long lists only some entries count, so that it takes no longer for a million runs.
[[nodiscard]] std::uint64_t hash(const Node& node) noexcept;
/// The same of every entry of every list: nodes that differ have different ones, as far as 64 bits go.
[[nodiscard]] std::uint64_t fingerprint(const Node& node) noexcept;

[[nodiscard]] RunFacts run_facts(const Node& node) noexcept;

/// What the tree takes in memory, nearly.
[[nodiscard]] std::size_t tree_bytes(const Node& node);

/// A node where it is to stand, as the builders take it.
struct Placed {
  std::int64_t offset;
  NodePointer node;
};
/// The same of a block.
struct Piece {
  std::int64_t offset;
  std::size_t length;
};

// The builders. All throw Error (type) where an offset or a size leaves 64 bits.

NodePointer empty();
NodePointer block(std::int64_t offset, std::size_t length);
/// `node` moved by `offset` bytes.
NodePointer shift(NodePointer node, std::int64_t offset);
/// `count` times `node`, `stride` bytes apart.
NodePointer repeat(NodePointer node, std::uint64_t count, std::int64_t stride);
/// The given nodes one after another, in this order.
NodePointer join(std::span<const Placed> placed);
/// What join() makes of blocks, without a node for each.
NodePointer join(std::span<const Piece> pieces);

}  // namespace crosslane::layout
