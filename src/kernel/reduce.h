// Local reductions on the GPU: inout = in op inout, as MPI_Reduce_local defines it.
// It must not know MPI's handles: callers name an Element and an Op.
#pragma once

#include "kernel/block.h"
#include "kernel/operation.h"

#include <cstdint>

namespace crosslane::kernel {

struct ReduceParameters {
  void* inout;
  const void* in;       ///< may be inout, but must not overlap it otherwise
  std::uint64_t count;  ///< elements
};

/// Sixteen bytes at a time where both ends are aligned to that, else element by element; byte by byte where an end is
/// not even aligned to its element (a packed buffer may be so).
template <class T, class Op>
struct Reduce {
  using Parameters = ReduceParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const std::uintptr_t ends = reinterpret_cast<std::uintptr_t>(p.inout) | reinterpret_cast<std::uintptr_t>(p.in);
    T* const inout = static_cast<T*>(p.inout);
    const T* const in = static_cast<const T*>(p.in);
    if (ends % 16 == 0) {
      const std::uint64_t vectors = p.count / width;
      block.for_each_in_grid(vectors, [&](std::uint64_t i) {
        auto* const to = static_cast<Vector*>(p.inout) + i;
        Vector mine = block.load(to);
        const Vector other = block.load(static_cast<const Vector*>(p.in) + i);
        for (unsigned k = 0; k < width; ++k) mine.element[k] = Op::apply(other.element[k], mine.element[k]);
        block.store(to, mine);
      });
      const std::uint64_t done = vectors * width;
      elements(block, inout + done, in + done, p.count - done);
    } else if (ends % alignof(T) == 0) {
      elements(block, inout, in, p.count);
    } else {
      block.for_each_in_grid(p.count, [&](std::uint64_t i) {
        const std::uint64_t to = reinterpret_cast<std::uintptr_t>(inout + i);
        const T mine = load_bytes<T>(block, to);
        store_bytes(block, to, Op::apply(load_bytes<T>(block, reinterpret_cast<std::uintptr_t>(in + i)), mine));
      });
    }
  }

 private:
  static constexpr unsigned width = 16 / sizeof(T);
  struct alignas(16) Vector {
    T element[width];
  };
  template <class B>
  CROSSLANE_DEVICE void elements(const B& block, T* inout, const T* in, std::uint64_t count) const {
    block.for_each_in_grid(
        count, [&](std::uint64_t i) { block.store(inout + i, Op::apply(block.load(in + i), block.load(inout + i))); });
  }
};

}  // namespace crosslane::kernel
