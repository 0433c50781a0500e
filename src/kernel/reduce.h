// Local reductions on the GPU: inout = in op inout, as MPI_Reduce_local defines it, and what was there goes elsewhere if that is wanted.
// It must not know MPI's handles: callers name an Element and an Op.
#pragma once

#include "kernel/block.h"
#include "kernel/ending.h"
#include "kernel/operation.h"

#include <cstdint>

namespace crosslane::kernel {

struct ReduceParameters {
  void* inout;
  const void* in;       ///< may be inout, but must not overlap it otherwise
  std::uint64_t count;  ///< elements
  /// Where what was at inout goes, if anywhere; overlaps neither.
  void* before = nullptr;
  /// What tells of the end, if it has a word, and then the counter that goes with it (ending.h).
  Ending ending{};
  std::uint64_t* counter = nullptr;
};

/// Sixteen bytes at a time where all ends are aligned to that, else element by element; byte by byte where an end is
/// not even aligned to its element (a packed buffer may be so).
template <class T, class Op>
struct Reduce {
  using Parameters = ReduceParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const std::uintptr_t ends = reinterpret_cast<std::uintptr_t>(p.inout) | reinterpret_cast<std::uintptr_t>(p.in) |
                                reinterpret_cast<std::uintptr_t>(p.before);
    T* const inout = static_cast<T*>(p.inout);
    T* const before = static_cast<T*>(p.before);
    const T* const in = static_cast<const T*>(p.in);
    if (ends % 16 == 0) {
      const std::uint64_t vectors = p.count / width;
      block.for_each_in_grid(vectors, [&](std::uint64_t i) {
        auto* const to = static_cast<Vector*>(p.inout) + i;
        Vector mine = block.load(to);
        const Vector other = block.load(static_cast<const Vector*>(p.in) + i);
        if (before != nullptr) block.store(static_cast<Vector*>(p.before) + i, mine);
        for (unsigned k = 0; k < width; ++k) mine.element[k] = Op::apply(other.element[k], mine.element[k]);
        block.store(to, mine);
      });
      const std::uint64_t done = vectors * width;
      elements(block, inout + done, in + done, before == nullptr ? nullptr : before + done, p.count - done);
    } else if (ends % alignof(T) == 0) {
      elements(block, inout, in, before, p.count);
    } else {
      block.for_each_in_grid(p.count, [&](std::uint64_t i) {
        const std::uint64_t to = reinterpret_cast<std::uintptr_t>(inout + i);
        const T mine = load_bytes<T>(block, to);
        const T other = load_bytes<T>(block, reinterpret_cast<std::uintptr_t>(in + i));
        if (before != nullptr) store_bytes(block, reinterpret_cast<std::uintptr_t>(before + i), mine);
        store_bytes(block, to, Op::apply(other, mine));
      });
    }
    if (p.ending.word != nullptr) tell_end(block, p.counter, &p.ending, 1);
  }

 private:
  static constexpr unsigned width = 16 / sizeof(T);
  struct alignas(16) Vector {
    T element[width];
  };
  template <class B>
  CROSSLANE_DEVICE void elements(const B& block, T* inout, const T* in, T* before, std::uint64_t count) const {
    block.for_each_in_grid(count, [&](std::uint64_t i) {
      const T mine = block.load(inout + i), other = block.load(in + i);
      if (before != nullptr) block.store(before + i, mine);
      block.store(inout + i, Op::apply(other, mine));
    });
  }
};

}  // namespace crosslane::kernel
