// Local reductions on the GPU: inout = in op inout, as MPI_Reduce_local defines it, for C's arithmetic types and
// MPI's predefined operations. It must not know MPI's handles: callers name an Element and an Op.
#pragma once

#include "kernel/block.h"

#include <cstdint>
#include <type_traits>

namespace crosslane::kernel {

struct ComplexFloat {
  float re, im;
};
struct ComplexDouble {
  double re, im;
};

namespace op {

// Signed overflow wraps, as it does on every GPU and in the MPIs' own loops.
template <class T>
using Wrapping =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>, T>;

struct Sum {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(static_cast<Wrapping<T>>(in) + static_cast<Wrapping<T>>(inout));
  }
  template <class T>
  CROSSLANE_DEVICE static T apply_complex(T in, T inout) {
    return {in.re + inout.re, in.im + inout.im};
  }
};
struct Prod {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(static_cast<Wrapping<T>>(in) * static_cast<Wrapping<T>>(inout));
  }
  template <class T>
  CROSSLANE_DEVICE static T apply_complex(T in, T inout) {
    return {in.re * inout.re - in.im * inout.im, in.re * inout.im + in.im * inout.re};
  }
};
// Of two values that do not compare (NaN), the one from `in` stays, as in Open MPI and MPICH.
struct Min {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return inout < in ? inout : in;
  }
};
struct Max {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return inout > in ? inout : in;
  }
};
struct Land {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(in != 0 && inout != 0);
  }
};
struct Lor {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(in != 0 || inout != 0);
  }
};
struct Lxor {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>((in != 0) != (inout != 0));
  }
};
struct Band {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(in & inout);
  }
};
struct Bor {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(in | inout);
  }
};
struct Bxor {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return static_cast<T>(in ^ inout);
  }
};

}  // namespace op

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
        for (unsigned k = 0; k < width; ++k) mine.element[k] = one(other.element[k], mine.element[k]);
        block.store(to, mine);
      });
      const std::uint64_t done = vectors * width;
      elements(block, inout + done, in + done, p.count - done);
    } else if (ends % alignof(T) == 0) {
      elements(block, inout, in, p.count);
    } else {
      block.for_each_in_grid(p.count, [&](std::uint64_t i) {
        T mine = load_bytes(block, inout + i);
        mine = one(load_bytes(block, in + i), mine);
        store_bytes(block, inout + i, mine);
      });
    }
  }

 private:
  static constexpr unsigned width = 16 / sizeof(T);
  struct alignas(16) Vector {
    T element[width];
  };
  union Raw {
    T value;
    std::uint8_t bytes[sizeof(T)];
  };

  CROSSLANE_DEVICE static T one(T in, T inout) {
    if constexpr (std::is_arithmetic_v<T>) {
      return Op::apply(in, inout);
    } else {
      return Op::apply_complex(in, inout);
    }
  }

  template <class B>
  CROSSLANE_DEVICE void elements(const B& block, T* inout, const T* in, std::uint64_t count) const {
    block.for_each_in_grid(
        count, [&](std::uint64_t i) { block.store(inout + i, one(block.load(in + i), block.load(inout + i))); });
  }

  template <class B>
  CROSSLANE_DEVICE static T load_bytes(const B& block, const T* from) {
    Raw raw;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(from);
    for (unsigned k = 0; k < sizeof(T); ++k) raw.bytes[k] = block.load(bytes + k);
    return raw.value;
  }
  template <class B>
  CROSSLANE_DEVICE static void store_bytes(const B& block, T* to, T value) {
    Raw raw;
    raw.value = value;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
    for (unsigned k = 0; k < sizeof(T); ++k) block.store(bytes + k, raw.bytes[k]);
  }
};

}  // namespace crosslane::kernel
