// What reductions compute: the elements that are more than a C type, and MPI's predefined operations on them.
// Combining two elements means the same in every kernel, bit for bit. It must not know MPI's handles.
#pragma once

#include "kernel/block.h"

#include <cstdint>
#include <type_traits>

namespace crosslane::kernel {

template <class T>
struct Complex {
  T re, im;
};
using ComplexFloat = Complex<float>;
using ComplexDouble = Complex<double>;

/// What minloc and maxloc take; C's structs have the same padding.
template <class V, class I>
struct Pair {
  V value;
  I index;
};
using I16I32 = Pair<std::int16_t, std::int32_t>;
using I32I32 = Pair<std::int32_t, std::int32_t>;
using I64I32 = Pair<std::int64_t, std::int32_t>;
using F32I32 = Pair<float, std::int32_t>;
using F64I32 = Pair<double, std::int32_t>;
using F32F32 = Pair<float, float>;
using F64F64 = Pair<double, double>;

namespace op {

// Signed overflow wraps, as it does on every GPU and in the MPIs' own loops.
template <class T>
using Wrapping =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>, T>;

// Sixteen-bit reals are computed in float, and rounded once an operation: of a sum or product of two that is the
// correctly rounded result, as float has more than twice their digits (but where a product of two bf16 is subnormal).
template <class T>
inline constexpr bool is_short_real = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// What compares in place of an element.
template <class T>
CROSSLANE_DEVICE auto comparable(T element) {
  if constexpr (is_short_real<T>) {
    return to_float(element);
  } else {
    return element;
  }
}

struct Sum {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    if constexpr (is_short_real<T>) {
      return from_float<T>(to_float(in) + to_float(inout));
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(in) + static_cast<Wrapping<T>>(inout));
    }
  }
  template <class T>
  CROSSLANE_DEVICE static Complex<T> apply(Complex<T> in, Complex<T> inout) {
    return {in.re + inout.re, in.im + inout.im};
  }
};
// Compiled without contraction to fused multiply-add: a complex product has the same bits everywhere.
struct Prod {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    if constexpr (is_short_real<T>) {
      return from_float<T>(to_float(in) * to_float(inout));
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(in) * static_cast<Wrapping<T>>(inout));
    }
  }
  template <class T>
  CROSSLANE_DEVICE static Complex<T> apply(Complex<T> in, Complex<T> inout) {
    return {in.re * inout.re - in.im * inout.im, in.re * inout.im + in.im * inout.re};
  }
};
// Of two values that do not compare (NaN), the one from `in` stays, as in Open MPI and MPICH.
struct Min {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return comparable(inout) < comparable(in) ? inout : in;
  }
};
struct Max {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    return comparable(inout) > comparable(in) ? inout : in;
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
// Of equal values the lower index wins. Values that do not compare: `inout` stays, as in Open MPI and MPICH.
struct Minloc {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    if (in.value < inout.value) return in;
    if (in.value == inout.value) return {in.value, in.index < inout.index ? in.index : inout.index};
    return inout;
  }
};
struct Maxloc {
  template <class T>
  CROSSLANE_DEVICE static T apply(T in, T inout) {
    if (in.value > inout.value) return in;
    if (in.value == inout.value) return {in.value, in.index < inout.index ? in.index : inout.index};
    return inout;
  }
};

}  // namespace op

/// An element that may lie at any address.
template <class T, class B>
CROSSLANE_DEVICE T load_bytes(const B& block, std::uint64_t address) {
  union Raw {
    T value;
    std::uint8_t bytes[sizeof(T)];
  } raw;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(address);
  for (unsigned k = 0; k < sizeof(T); ++k) raw.bytes[k] = block.load(bytes + k);
  return raw.value;
}
template <class T, class B>
CROSSLANE_DEVICE void store_bytes(const B& block, std::uint64_t address, T value) {
  union Raw {
    T value;
    std::uint8_t bytes[sizeof(T)];
  } raw;
  raw.value = value;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(address);
  for (unsigned k = 0; k < sizeof(T); ++k) {
    if constexpr (op::is_short_real<T>) {
      block.store(bytes + k, byte_of(value.bits, k));
    } else {
      block.store(bytes + k, raw.bytes[k]);
    }
  }
}

}  // namespace crosslane::kernel
