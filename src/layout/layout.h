// What an MPI datatype is to us: which bytes of a buffer it touches, in the order in which MPI packs them.
// A million equal blocks cost one entry. Immutable, cheap to copy. It must not know MPI's handles (decode.h does).
#pragma once

#include "kernel/strided.h"
#include "layout/node.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

namespace crosslane::layout {

/// Bytes relative to a buffer's address: the lowest one touched, and one past the highest.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

using kernel::Strided;

class Layout {
 public:
  /// One element: its bytes, and MPI's lower bound and extent.
  Layout(NodePointer node, std::int64_t lb, std::int64_t extent) : node_(std::move(node)), lb_(lb), extent_(extent) {}

  [[nodiscard]] const NodePointer& node() const noexcept { return node_; }
  [[nodiscard]] std::size_t size() const noexcept { return node_->size; }
  [[nodiscard]] std::int64_t lb() const noexcept { return lb_; }
  [[nodiscard]] std::int64_t extent() const noexcept { return extent_; }
  /// The lowest byte touched; 0 if none is.
  [[nodiscard]] std::int64_t true_lb() const noexcept { return node_->low; }
  [[nodiscard]] std::int64_t true_extent() const noexcept { return node_->high - node_->low; }
  /// Runs of one element; an upper bound where runs of neighbouring repetitions touch.
  [[nodiscard]] std::uint64_t run_count() const noexcept { return node_->run_count; }

  /// True if any number of elements is one contiguous run, packed as it lies (at true_lb).
  [[nodiscard]] bool dense() const noexcept {
    return node_->kind == Node::Kind::empty ||
           (node_->kind == Node::Kind::block && static_cast<std::int64_t>(node_->size) == extent_);
  }

  /// True if so many elements are one contiguous run, packed as it lies.
  [[nodiscard]] bool contiguous(std::int64_t count) const noexcept {
    return dense() || (count == 1 && node_->kind == Node::Kind::block);
  }

  /// The bytes that `count` elements touch; empty where they touch none. Throws Error (count) past 64 bits.
  [[nodiscard]] Span span(std::int64_t count) const;

  /// The packed bytes of `count` elements. Throws Error (count) past 63 bits.
  [[nodiscard]] std::size_t packed_size(std::int64_t count) const;

  /// `count` elements as a nest of loops around one run, or nothing where they are none.
  [[nodiscard]] std::optional<Strided> as_strided(std::int64_t count) const noexcept;

  /// Calls f(offset, length) for the packed bytes [begin, end) of `count` elements, in packing order; adjacent runs
  /// come as one. offset: std::int64_t from the buffer's address; length: std::size_t. Bytes before `begin` cost
  /// nothing.
  template <class F>
  void for_each_run(std::int64_t count, std::size_t begin, std::size_t end, F&& f) const {
    if (begin >= end || count <= 0 || node_->kind == Node::Kind::empty) return;
    assert((end - 1) / node_->size < static_cast<std::uint64_t>(count));
    Joined<F> joined{f};
    if (dense()) {
      joined.add(node_->low + static_cast<std::int64_t>(begin), end - begin);
    } else {
      walk_loop(*node_, extent_, 0, begin, end, joined);
    }
    joined.flush();
  }

  /// Copies the packed bytes [begin, end) of `count` elements at `source` to `packed` (which receives byte `begin`
  /// first), or back. Host memory only.
  void pack(void* packed, const void* source, std::int64_t count, std::size_t begin, std::size_t end) const;
  void unpack(void* target, const void* packed, std::int64_t count, std::size_t begin, std::size_t end) const;

 private:
  // Holds back the last run, for the next one may continue it.
  template <class F>
  struct Joined {
    F& f;
    std::int64_t offset = 0;
    std::size_t length = 0;

    void add(std::int64_t at, std::size_t bytes) {
      if (at == offset + static_cast<std::int64_t>(length) && length != 0) {
        length += bytes;
        return;
      }
      if (length != 0) f(offset, length);
      offset = at;
      length = bytes;
    }
    void flush() {
      if (length != 0) f(offset, length);
    }
  };

  // The bytes [begin, end) of as many repetitions of `child` as that takes.
  template <class J>
  static void walk_loop(const Node& child, std::int64_t stride, std::int64_t base, std::size_t begin, std::size_t end,
                        J& joined) {
    const std::size_t first = begin / child.size;
    std::int64_t at = base + static_cast<std::int64_t>(first) * stride;
    std::size_t from = begin - first * child.size;
    std::size_t left = end - begin;
    if (child.kind == Node::Kind::block) {  // the most common innermost loop, without the calls
      while (left != 0) {
        const std::size_t length = std::min(left, child.size - from);
        joined.add(at + child.low + static_cast<std::int64_t>(from), length);
        left -= length;
        from = 0;
        if (left != 0) at += stride;
      }
      return;
    }
    while (left != 0) {
      const std::size_t length = std::min(left, child.size - from);
      walk(child, at, from, from + length, joined);
      left -= length;
      from = 0;
      if (left != 0) at += stride;
    }
  }

  template <class J>
  static void walk(const Node& node, std::int64_t base, std::size_t begin, std::size_t end, J& joined) {
    switch (node.kind) {
      case Node::Kind::empty:
        return;
      case Node::Kind::block:
        joined.add(base + node.low + static_cast<std::int64_t>(begin), end - begin);
        return;
      case Node::Kind::loop:
        walk_loop(*node.child, node.stride, base, begin, end, joined);
        return;
      case Node::Kind::runs: {
        auto run = first_at(node.list, begin);
        for (std::size_t at = begin; at < end; ++run) {
          const std::size_t stop = std::min(end, (run + 1)->packed);
          joined.add(base + run->offset + static_cast<std::int64_t>(at - run->packed), stop - at);
          at = stop;
        }
        return;
      }
      case Node::Kind::sequence: {
        auto part = first_at(node.parts, begin);
        for (std::size_t at = begin; at < end; ++part) {
          const std::size_t stop = std::min(end, part->packed + part->node->size);
          walk(*part->node, base + part->offset, at - part->packed, stop - part->packed, joined);
          at = stop;
        }
        return;
      }
    }
  }

  // The entry that holds packed byte `begin`.
  template <class List>
  static auto first_at(const List& list, std::size_t begin) {
    if (begin == 0) return list.begin();
    return std::prev(std::upper_bound(list.begin(), list.end(), begin,
                                      [](std::size_t byte, const auto& entry) { return byte < entry.packed; }));
  }

  NodePointer node_;
  std::int64_t lb_;
  std::int64_t extent_;
};

}  // namespace crosslane::layout
