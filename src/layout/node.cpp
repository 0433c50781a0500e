// See node.h.
#include "layout/node.h"

#include "base/error.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace crosslane::layout {
namespace {

[[noreturn]] void overflow() {
  throw base::Error(base::ErrorClass::type, "the datatype's displacements or its size do not fit into 64 bits");
}

std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) overflow();
  return sum;
}

std::int64_t multiply(std::int64_t a, std::uint64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) overflow();
  return product;
}

// Sizes stay below 2^63, so that they compare with offsets.
std::size_t add_sizes(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > std::size_t{std::numeric_limits<std::int64_t>::max()}) overflow();
  return sum;
}

std::size_t multiply_sizes(std::size_t a, std::uint64_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > std::size_t{std::numeric_limits<std::int64_t>::max()}) {
    overflow();
  }
  return product;
}

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

// Lists inside a list are copied into it while it stays this short: a flat list is walked faster than a tree, but a
// large type that is used many times must not be copied as often.
constexpr std::uint64_t flatten_limit = 4096;

// Of every run's length the greatest common divisor; of every run's distance from one place the bits that are set.
struct Gathered {
  std::uint64_t divisor = 0, bits = 0;

  void add_length(std::size_t length) noexcept {
    // Mostly a power of two that divides the next length too: that takes no division. 0 goes to gcd.
    const std::uint64_t below = divisor - 1;
    if (((divisor & below) == 0 ? length & below : length % divisor) != 0) divisor = std::gcd(divisor, length);
  }
  [[nodiscard]] RunFacts facts() const noexcept {
    const std::uint64_t all = bits | divisor;
    return {divisor, all & (0 - all)};
  }
};

// Collects what a join is made of: runs as long as there are only runs, parts from the first other node on.
class Joiner {
 public:
  /// For about so many runs.
  explicit Joiner(std::size_t runs) { list_.reserve(runs + 1); }

  void add(std::int64_t offset, const NodePointer& node) {
    switch (node->kind) {
      case Node::Kind::empty:
        return;
      case Node::Kind::block:
        add_run(layout::add(offset, node->low), node->size);
        return;
      case Node::Kind::runs:
        if (list_.size() + node->run_count <= flatten_limit) {
          for (std::size_t i = 0; i + 1 < node->list.size(); ++i) {
            add_run(layout::add(offset, node->list[i].offset), node->list[i + 1].packed - node->list[i].packed);
          }
          return;
        }
        break;
      case Node::Kind::sequence:
        if (parts_.size() + node->parts.size() <= flatten_limit) {
          for (const Part& part : node->parts) add(layout::add(offset, part.offset), part.node);
          return;
        }
        break;
      case Node::Kind::loop:
        // As runs it takes no more memory than as a part.
        if (node->child->kind == Node::Kind::block && node->count <= short_loop) {
          for (std::uint64_t i = 0; i < node->count; ++i) {
            add_run(layout::add(layout::add(offset, multiply(node->stride, i)), node->child->low), node->child->size);
          }
          return;
        }
        break;
    }
    flush_runs();
    parts_.push_back({offset, 0, node});
  }

  void add_run(std::int64_t offset, std::size_t length) {
    if (length == 0) return;
    // Where the last one ends was checked when it was added; where it is joined, this one's end is the new one.
    if (!list_.empty() && end_ == offset) {
      end_ = layout::add(end_, static_cast<std::int64_t>(length));
    } else {
      end_ = layout::add(offset, static_cast<std::int64_t>(length));
      list_.push_back({offset, size_});
    }
    size_ = add_sizes(size_, length);
  }

  NodePointer finish() {
    if (parts_.empty()) return runs_node();
    flush_runs();
    return sequence_node();
  }

 private:
  static constexpr std::uint64_t short_loop = 2;

  void flush_runs() {
    if (list_.empty()) return;
    parts_.push_back({0, 0, runs_node()});
    list_.clear();
    size_ = 0;
  }

  // Takes the list.
  NodePointer runs_node() {
    if (list_.empty()) return empty();
    const std::size_t count = list_.size();
    list_.push_back({0, size_});
    const auto length = [&](std::size_t i) { return list_[i + 1].packed - list_[i].packed; };
    if (count == 1) return block(list_[0].offset, length(0));
    const std::int64_t stride = add_checked_difference(list_[1].offset, list_[0].offset);
    bool regular = true;
    for (std::size_t i = 1; i < count && regular; ++i) {
      regular = length(i) == length(0) && add_checked_difference(list_[i].offset, list_[i - 1].offset) == stride;
    }
    if (regular) return repeat(block(list_[0].offset, length(0)), count, stride);

    auto node = std::make_shared<Node>();
    node->kind = Node::Kind::runs;
    node->size = size_;
    node->low = std::numeric_limits<std::int64_t>::max();
    node->high = std::numeric_limits<std::int64_t>::min();
    Gathered all;
    // Distances from any of the runs have the same common powers of two as those from the lowest.
    const auto first = static_cast<std::uint64_t>(list_[0].offset);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t offset = list_[i].offset;
      all.bits |= static_cast<std::uint64_t>(offset) - first;
      all.add_length(length(i));
      node->low = std::min(node->low, offset);
      node->high = std::max(node->high, offset + static_cast<std::int64_t>(length(i)));
    }
    node->facts = all.facts();
    node->run_count = count;
    // Room for many runs that were joined is given back.
    if (list_.capacity() / 2 > list_.size()) list_.shrink_to_fit();
    node->list = std::move(list_);
    return node;
  }

  NodePointer sequence_node() {
    if (parts_.size() == 1) return shift(parts_[0].node, parts_[0].offset);
    // Equal parts at equal distances are a loop.
    const std::int64_t stride = add_checked_difference(parts_[1].offset, parts_[0].offset);
    bool regular = true;
    for (std::size_t i = 1; i < parts_.size() && regular; ++i) {
      regular =
          parts_[i].node == parts_[0].node && add_checked_difference(parts_[i].offset, parts_[i - 1].offset) == stride;
    }
    if (regular) return repeat(shift(parts_[0].node, parts_[0].offset), parts_.size(), stride);

    auto node = std::make_shared<Node>();
    node->kind = Node::Kind::sequence;
    node->low = std::numeric_limits<std::int64_t>::max();
    node->high = std::numeric_limits<std::int64_t>::min();
    for (Part& part : parts_) {
      part.packed = node->size;
      node->size = add_sizes(node->size, part.node->size);
      node->low = std::min(node->low, layout::add(part.offset, part.node->low));
      node->high = std::max(node->high, layout::add(part.offset, part.node->high));
      node->run_count = saturating_add(node->run_count, part.node->run_count);
    }
    node->parts = std::move(parts_);
    return node;
  }

  static std::int64_t add_checked_difference(std::int64_t a, std::int64_t b) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a, b, &difference)) overflow();
    return difference;
  }

  std::vector<Run> list_;  // without the entry that ends it
  std::size_t size_ = 0;   // packed bytes of the list
  std::int64_t end_ = 0;   // of its last run
  std::vector<Part> parts_;
};

void gather(const Node& node, std::uint64_t base, std::uint64_t low, Gathered& all) noexcept {
  const auto at = [&](std::int64_t offset) { return base + static_cast<std::uint64_t>(offset); };
  switch (node.kind) {
    case Node::Kind::empty:
      return;
    case Node::Kind::block:
      all.bits |= at(node.low) - low;
      all.add_length(node.size);
      return;
    case Node::Kind::loop:
      all.bits |= static_cast<std::uint64_t>(node.stride);
      gather(*node.child, base, low, all);
      return;
    case Node::Kind::runs:
      all.bits |= (at(node.low) - low) | node.facts.alignment;
      all.add_length(node.facts.divisor);
      return;
    case Node::Kind::sequence:
      for (const Part& part : node.parts) gather(*part.node, at(part.offset), low, all);
      return;
  }
}

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  return hash ^ hash >> 32;
}

enum class Entries { some, all };

// f with entries of a list. Some are spread over it; the first and the last two are among them, since a list of runs ends with
// an entry that is none.
template <Entries which, class List, class F>
void for_each_of(const List& list, F f) {
  constexpr std::size_t most = 256;
  const std::size_t entries = list.size();
  if (which == Entries::all || entries <= most) {
    for (const auto& entry : list) f(entry);
    return;
  }
  for (std::size_t i = 0; i < most; ++i) f(list[i * ((entries - 1) / (most - 1))]);
  f(list[entries - 2]);
  f(list[entries - 1]);
}

template <Entries which>
std::uint64_t digest(const Node& node) noexcept {
  std::uint64_t all = mix(static_cast<std::uint64_t>(node.kind), node.size);
  all = mix(all, static_cast<std::uint64_t>(node.low));
  all = mix(mix(all, node.count), static_cast<std::uint64_t>(node.stride));
  if (node.child != nullptr) all = mix(all, digest<which>(*node.child));
  all = mix(mix(mix(all, static_cast<std::uint64_t>(node.high)), node.list.size()), node.parts.size());
  for_each_of<which>(node.list,
                     [&](const Run& run) { all = mix(mix(all, static_cast<std::uint64_t>(run.offset)), run.packed); });
  for_each_of<which>(node.parts, [&](const Part& part) {
    all = mix(mix(all, static_cast<std::uint64_t>(part.offset)), digest<which>(*part.node));
  });
  return all;
}

}  // namespace

std::size_t tree_bytes(const Node& node) {
  std::unordered_set<const Node*> seen;  // nodes are shared
  std::vector<const Node*> next{&node};
  std::size_t bytes = 0;
  while (!next.empty()) {
    const Node& one = *next.back();
    next.pop_back();
    if (!seen.insert(&one).second) continue;
    bytes += sizeof one + one.list.size() * sizeof(Run) + one.parts.size() * sizeof(Part);
    if (one.child) next.push_back(one.child.get());
    for (const Part& part : one.parts) next.push_back(part.node.get());
  }
  return bytes;
}

RunFacts run_facts(const Node& node) noexcept {
  Gathered all;
  gather(node, 0, static_cast<std::uint64_t>(node.low), all);
  return all.facts();
}

bool equal(const Node& a, const Node& b) noexcept {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.size != b.size || a.low != b.low || a.high != b.high || a.run_count != b.run_count ||
      a.count != b.count || a.stride != b.stride || a.list.size() != b.list.size() || a.parts.size() != b.parts.size())
    return false;
  if (a.kind == Node::Kind::loop) return equal(*a.child, *b.child);
  const auto same_run = [](const Run& x, const Run& y) { return x.offset == y.offset && x.packed == y.packed; };
  const auto same_part = [](const Part& x, const Part& y) { return x.offset == y.offset && equal(*x.node, *y.node); };
  return std::equal(a.list.begin(), a.list.end(), b.list.begin(), same_run) &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same_part);
}

std::uint64_t hash(const Node& node) noexcept { return digest<Entries::some>(node); }

std::uint64_t fingerprint(const Node& node) noexcept { return digest<Entries::all>(node); }

NodePointer empty() { return std::make_shared<const Node>(); }

NodePointer block(std::int64_t offset, std::size_t length) {
  if (length == 0) return empty();
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::block;
  node->size = add_sizes(length, 0);
  node->low = offset;
  node->high = add(offset, static_cast<std::int64_t>(length));
  node->run_count = 1;
  return node;
}

NodePointer shift(NodePointer node, std::int64_t offset) {
  if (offset == 0 || node->kind == Node::Kind::empty) return node;
  auto moved = std::make_shared<Node>(*node);
  moved->low = add(node->low, offset);
  moved->high = add(node->high, offset);
  switch (node->kind) {
    case Node::Kind::empty:
    case Node::Kind::block:
      break;
    case Node::Kind::loop:
      moved->child = shift(node->child, offset);
      break;
    case Node::Kind::runs:
      for (std::size_t i = 0; i + 1 < moved->list.size(); ++i)
        moved->list[i].offset = add(moved->list[i].offset, offset);
      break;
    case Node::Kind::sequence:
      for (Part& part : moved->parts) part.offset = add(part.offset, offset);
      break;
  }
  return moved;
}

NodePointer repeat(NodePointer node, std::uint64_t count, std::int64_t stride) {
  if (count == 0 || node->kind == Node::Kind::empty) return empty();
  if (count == 1) return node;
  if (node->kind == Node::Kind::block && static_cast<std::int64_t>(node->size) == stride) {
    return block(node->low, multiply_sizes(node->size, count));
  }
  std::uint64_t all = 0;
  std::int64_t reach = 0;
  if (node->kind == Node::Kind::loop && !__builtin_mul_overflow(node->stride, node->count, &reach) && reach == stride &&
      !__builtin_mul_overflow(node->count, count, &all)) {
    return repeat(node->child, all, node->stride);
  }
  auto loop = std::make_shared<Node>();
  loop->kind = Node::Kind::loop;
  loop->size = multiply_sizes(node->size, count);
  loop->count = count;
  loop->stride = stride;
  const std::int64_t last = multiply(stride, count - 1);
  loop->low = add(node->low, std::min<std::int64_t>(last, 0));
  loop->high = add(node->high, std::max<std::int64_t>(last, 0));
  loop->run_count = saturating_multiply(node->run_count, count);
  loop->child = std::move(node);
  return loop;
}

NodePointer join(std::span<const Placed> placed) {
  Joiner joiner(placed.size());
  for (const Placed& one : placed) joiner.add(one.offset, one.node);
  return joiner.finish();
}

NodePointer join(std::span<const Piece> pieces) {
  Joiner joiner(pieces.size());
  for (const Piece& one : pieces) joiner.add_run(one.offset, one.length);
  return joiner.finish();
}

}  // namespace crosslane::layout
