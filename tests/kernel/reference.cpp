// See reference.h.
#include "reference.h"

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>

namespace crosslane::test {
namespace {

using kernel::Element;
using kernel::Op;

// The upper half of a float. Computed in float, as it is defined, and rounded once more.
struct Brain {
  std::uint16_t bits;
};
double value_of(Brain b) { return std::bit_cast<float>(std::uint32_t{b.bits} << 16); }
Brain to_brain(double result) {
  const double exact = static_cast<float>(result);
  if (std::isnan(exact)) return {0x7fff};
  // The nearest of the neighbours below and above, ties to the even one.
  const float near = static_cast<float>(exact);
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(near) >> 16);
  Brain best{below};
  for (const int step : {-1, 0, 1, 2}) {
    const Brain other{static_cast<std::uint16_t>(below + step)};
    if ((other.bits & 0x7fff) > 0x7f80 || ((other.bits ^ below) & 0x8000) != 0) continue;
    // Infinity counts as the number that would come next.
    const auto place = [](Brain b) {
      return std::isinf(value_of(b)) ? std::copysign(0x1p128, value_of(b)) : value_of(b);
    };
    if (std::isinf(exact)) return std::isinf(value_of(best)) ? best : to_brain(std::copysign(0x1p129, exact));
    const double now = std::fabs(place(other) - exact), before = std::fabs(place(best) - exact);
    if (now < before || (now == before && other.bits % 2 == 0)) best = other;
  }
  return best;
}

template <class V, class I>
struct Located {
  V value;
  I index;
};

template <class T>
constexpr bool is_pair = false;
template <class V, class I>
constexpr bool is_pair<Located<V, I>> = true;
template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;
template <class T>
constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, _Float16>;

// MPI's definition, in C++'s own types; nothing where there is none.
template <class T>
std::optional<T> one(Op op, T in, T inout) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    const auto a = static_cast<std::uint64_t>(static_cast<Unsigned>(in)),
               b = static_cast<std::uint64_t>(static_cast<Unsigned>(inout));
    switch (op) {
      case Op::sum:
        return static_cast<T>(a + b);
      case Op::prod:
        return static_cast<T>(a * b);
      case Op::land:
        return static_cast<T>(in && inout);
      case Op::lor:
        return static_cast<T>(in || inout);
      case Op::lxor:
        return static_cast<T>(!in != !inout);
      case Op::band:
        return static_cast<T>(a & b);
      case Op::bor:
        return static_cast<T>(a | b);
      case Op::bxor:
        return static_cast<T>(a ^ b);
      default:
        break;
    }
  }
  if constexpr (std::is_integral_v<T> || is_real<T>) {
    if (op == Op::min) return inout < in ? inout : in;
    if (op == Op::max) return inout > in ? inout : in;
  }
  if constexpr (is_real<T>) {
    if (op == Op::sum) return static_cast<T>(in + inout);
    if (op == Op::prod) return static_cast<T>(in * inout);
  }
  if constexpr (is_complex<T>) {
    if (op == Op::sum) return in + inout;
    // Spelt out: C++'s product treats NaN in its own way.
    const volatile auto a = in.real() * inout.real(), b = in.imag() * inout.imag(), c = in.real() * inout.imag(),
                        d = in.imag() * inout.real();
    if (op == Op::prod) return T{a - b, c + d};
  }
  if constexpr (std::is_same_v<T, Brain>) {
    const double a = value_of(in), b = value_of(inout);
    if (op == Op::sum) return to_brain(a + b);
    if (op == Op::prod) return to_brain(a * b);
    if (op == Op::min) return b < a ? inout : in;
    if (op == Op::max) return b > a ? inout : in;
  }
  if constexpr (is_pair<T>) {
    if (op != Op::minloc && op != Op::maxloc) return std::nullopt;
    if (in.value == inout.value) return T{in.value, in.index < inout.index ? in.index : inout.index};
    if (op == Op::minloc ? in.value < inout.value : in.value > inout.value) return in;
    return inout;
  }
  return std::nullopt;
}

template <class T>
T random_one(std::mt19937_64& engine) {
  if constexpr (std::is_integral_v<T>) {
    // Small ones too, so that the logical operations see zeros.
    return static_cast<T>(engine() % 3 == 0 ? engine() % 2 : engine());
  } else if constexpr (is_real<T>) {
    constexpr double top = sizeof(T) == 2 ? 200 : 1e9;
    if (engine() % 64 == 0)
      return static_cast<T>(engine() % 2 == 0 ? std::numeric_limits<float>::infinity()
                                              : std::numeric_limits<float>::quiet_NaN());
    return static_cast<T>(std::uniform_real_distribution<double>(-top, top)(engine));
  } else if constexpr (is_complex<T>) {
    using Part = typename T::value_type;
    std::uniform_real_distribution<double> some(-1e3, 1e3);
    return {static_cast<Part>(some(engine)), static_cast<Part>(some(engine))};
  } else if constexpr (std::is_same_v<T, Brain>) {
    return Brain{static_cast<std::uint16_t>(engine())};
  } else {
    return {};
  }
}

template <class T>
struct Tag {
  using Type = T;
};
template <class F>
auto with(Element element, F f) {
  switch (element) {
    case Element::i8:
      return f(Tag<std::int8_t>());
    case Element::u8:
      return f(Tag<std::uint8_t>());
    case Element::i16:
      return f(Tag<std::int16_t>());
    case Element::u16:
      return f(Tag<std::uint16_t>());
    case Element::i32:
      return f(Tag<std::int32_t>());
    case Element::u32:
      return f(Tag<std::uint32_t>());
    case Element::i64:
      return f(Tag<std::int64_t>());
    case Element::u64:
      return f(Tag<std::uint64_t>());
    case Element::f16:
      return f(Tag<_Float16>());
    case Element::bf16:
      return f(Tag<Brain>());
    case Element::f32:
      return f(Tag<float>());
    case Element::f64:
      return f(Tag<double>());
    case Element::c64:
      return f(Tag<std::complex<float>>());
    case Element::c128:
      return f(Tag<std::complex<double>>());
    case Element::i16_i32:
      return f(Tag<Located<short, int>>());
    case Element::i32_i32:
      return f(Tag<Located<int, int>>());
    case Element::i64_i32:
      return f(Tag<Located<long, int>>());
    case Element::f32_i32:
      return f(Tag<Located<float, int>>());
    case Element::f64_i32:
      return f(Tag<Located<double, int>>());
    case Element::f32_f32:
      return f(Tag<Located<float, float>>());
    case Element::f64_f64:
      break;
  }
  return f(Tag<Located<double, double>>());
}

template <class T>
T get(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(Bytes& bytes, std::size_t at, const T& value) {
  std::memcpy(bytes.data() + at * sizeof(T), &value, sizeof(T));
}

template <class T>
T one_nan(T value) {
  if constexpr (is_real<T>) {
    if (value != value) return static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  } else if constexpr (std::is_same_v<T, Brain>) {
    if ((value.bits & 0x7fff) > 0x7f80) return {0x7fff};
  }
  return value;
}

}  // namespace

bool defined(Op op, Element element) {
  return with(element, [&]<class T>(Tag<T>) { return one<T>(op, T(), T()).has_value(); });
}

Bytes random_elements(Element element, std::size_t count, std::mt19937_64& engine) {
  Bytes result(count * kernel::bytes_of(element));
  for (auto& byte : result) byte = static_cast<std::byte>(engine());
  with(element, [&]<class T>(Tag<T>) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (sizeof(T) != kernel::bytes_of(element)) throw std::logic_error("an element of another size");
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (is_pair<T>) {
        // Member by member, which leaves the padding as it is.
        const auto value = static_cast<decltype(T::value)>(static_cast<int>(engine() % 7) - 3);
        const auto index = static_cast<decltype(T::index)>(engine() % 100);
        std::memcpy(result.data() + i * sizeof(T) + offsetof(T, value), &value, sizeof value);
        std::memcpy(result.data() + i * sizeof(T) + offsetof(T, index), &index, sizeof index);
      } else {
        put(result, i, random_one<T>(engine));
      }
    }
    return 0;
  });
  return result;
}

void combine(Op op, Element element, const Bytes& in, Bytes& inout) {
  with(element, [&]<class T>(Tag<T>) {
    for (std::size_t i = 0; i < inout.size() / sizeof(T); ++i) put(inout, i, *one(op, get<T>(in, i), get<T>(inout, i)));
    return 0;
  });
}

Bytes significant(Element element, Bytes bytes) {
  Bytes result(bytes.size());
  with(element, [&]<class T>(Tag<T>) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const T value = get<T>(bytes, i);
      if constexpr (is_pair<T>) {
        std::memcpy(result.data() + i * sizeof(T) + offsetof(T, value), &value.value, sizeof value.value);
        std::memcpy(result.data() + i * sizeof(T) + offsetof(T, index), &value.index, sizeof value.index);
      } else {
        put(result, i, one_nan(value));
      }
    }
    return 0;
  });
  return result;
}

std::vector<Element> all_elements() {
  std::vector<Element> all;
  for (std::size_t i = 0; i < kernel::element_count; ++i) all.push_back(static_cast<Element>(i));
  return all;
}
std::vector<Op> all_ops() {
  std::vector<Op> all;
  for (std::size_t i = 0; i < kernel::op_count; ++i) all.push_back(static_cast<Op>(i));
  return all;
}

const char* name_of(Op op, Element element) {
  const auto found = kernel::combination(op, element);
  return found ? kernel::combinations()[found->row].name : "an undefined operation";
}

}  // namespace crosslane::test
