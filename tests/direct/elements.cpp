// See elements.h. Integers wrap around; floating-point sums and products are those of IEEE 754, one after another.
#include "direct/elements.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace crosslane::tests {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Many zeros, so that logical operations differ; else the whole range, but for small ones, of which eight can be added: Open MPI
// saturates those with vector instructions instead of wrapping around. MPICH 4.0.2 compares unsigned ones as if they were signed.
template <class T>
void fill_integers(Random& random, std::span<std::byte> out, bool whole) {
  Noise noise(random.next());
  for (std::size_t at = 0; at < out.size(); at += sizeof(T)) {
    constexpr std::uint64_t small = (std::uint64_t{1} << (8 * sizeof(T) - 4)) - 1;
    const std::uint64_t bits = noise.next();
    const T value = noise.between(1, 100) <= 20 ? T{0} : static_cast<T>(sizeof(T) <= 2 ? bits & small : bits);
    const T kept = whole ? static_cast<T>(value & std::numeric_limits<std::make_signed_t<T>>::max()) : value;
    std::memcpy(&out[at], &kept, sizeof kept);
  }
}

template <class T>
void combine_integers(MPI_Op op, std::byte* a, const std::byte* b) {
  using Wide = std::uint64_t;
  const T x = read<T>(a), y = read<T>(b);
  T z{};
  if (op == MPI_SUM) z = static_cast<T>(static_cast<Wide>(x) + static_cast<Wide>(y));
  if (op == MPI_PROD) z = static_cast<T>(static_cast<Wide>(x) * static_cast<Wide>(y));
  if (op == MPI_MIN) z = x < y ? x : y;
  if (op == MPI_MAX) z = x > y ? x : y;
  if (op == MPI_LAND) z = static_cast<T>(x != 0 && y != 0);
  if (op == MPI_LOR) z = static_cast<T>(x != 0 || y != 0);
  if (op == MPI_LXOR) z = static_cast<T>((x != 0) != (y != 0));
  if (op == MPI_BAND) z = static_cast<T>(x & y);
  if (op == MPI_BOR) z = static_cast<T>(x | y);
  if (op == MPI_BXOR) z = static_cast<T>(x ^ y);
  std::memcpy(a, &z, sizeof z);
}

// Products of eight of these neither overflow nor become subnormal, in single precision either.
template <class T>
void fill_floats(Random& random, std::span<std::byte> out, bool whole) {
  Noise noise(random.next());
  for (std::size_t at = 0; at < out.size(); at += sizeof(T)) {
    const auto number = noise.between(-1000000, 1000000);
    const T value = whole ? static_cast<T>(number / 1000) : static_cast<T>(static_cast<double>(number) / 7001.0);
    std::memcpy(&out[at], &value, sizeof value);
  }
}

template <class T>
void combine_floats(MPI_Op op, std::byte* a, const std::byte* b) {
  const T x = read<T>(a), y = read<T>(b);
  T z{};
  if (op == MPI_SUM) z = x + y;
  if (op == MPI_PROD) z = x * y;
  if (op == MPI_MIN) z = y < x ? y : x;
  if (op == MPI_MAX) z = x < y ? y : x;
  std::memcpy(a, &z, sizeof z);
}

// Small whole numbers: their products are exact, whether or not a multiplication is fused with an addition. 2 + i and 3 + 2i are primes
// among such numbers, and no product of them, turned by quarters of a circle, has a part that is zero, whose sign would tell in which order
// they were multiplied.
template <class T>
void fill_complex(Random& random, std::span<std::byte> out, bool /*whole*/) {
  Noise noise(random.next());
  for (std::size_t at = 0; at < out.size(); at += sizeof(std::complex<T>)) {
    const auto more = static_cast<T>(noise.between(0, 1));
    std::complex<T> value(2 + more, 1 + more);
    for (auto quarters = noise.between(0, 3); quarters > 0; --quarters) value = {-value.imag(), value.real()};
    std::memcpy(&out[at], &value, sizeof value);
  }
}

template <class T>
void combine_complex(MPI_Op op, std::byte* a, const std::byte* b) {
  const auto x = read<std::complex<T>>(a), y = read<std::complex<T>>(b);
  const std::complex<T> z = op == MPI_SUM ? x + y
                                          : std::complex<T>(x.real() * y.real() - x.imag() * y.imag(),
                                                            x.real() * y.imag() + x.imag() * y.real());
  std::memcpy(a, &z, sizeof z);
}

template <class T>
struct Pair {
  T value;
  int place;
};

// Few values, so that places decide as well.
template <class T>
void fill_pairs(Random& random, std::span<std::byte> out, bool /*whole*/) {
  Noise noise(random.next());
  for (std::size_t at = 0; at < out.size(); at += sizeof(Pair<T>)) {
    Pair<T> pair;
    std::memset(&pair, 0, sizeof pair);
    pair.value = static_cast<T>(noise.between(-3, 3));
    pair.place = noise.between(-5, 100);
    std::memcpy(&out[at], &pair, sizeof pair);
  }
}

template <class T>
void combine_pairs(MPI_Op op, std::byte* a, const std::byte* b) {
  const auto x = read<Pair<T>>(a), y = read<Pair<T>>(b);
  const bool better = op == MPI_MINLOC ? y.value < x.value : x.value < y.value;
  const bool same = x.value == y.value;
  if (better || (same && y.place < x.place)) std::memcpy(a, b, sizeof(Pair<T>));
}

const std::vector<std::pair<std::string, MPI_Op>> arithmetic{
    {"sum", MPI_SUM}, {"prod", MPI_PROD}, {"min", MPI_MIN}, {"max", MPI_MAX}};
const std::vector<std::pair<std::string, MPI_Op>> logical{{"land", MPI_LAND}, {"lor", MPI_LOR}, {"lxor", MPI_LXOR}};
const std::vector<std::pair<std::string, MPI_Op>> bitwise{{"band", MPI_BAND}, {"bor", MPI_BOR}, {"bxor", MPI_BXOR}};

std::vector<std::pair<std::string, MPI_Op>> joined(std::vector<std::pair<std::string, MPI_Op>> first,
                                                   const std::vector<std::pair<std::string, MPI_Op>>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

template <class T>
Base base(const char* name, MPI_Datatype type) {
  return {name, type, sizeof(T), std::vector<std::uint8_t>(sizeof(T), 0)};
}

template <class T>
Element integer(const char* name, MPI_Datatype type) {
  return {base<T>(name, type), alignof(T),          joined(joined(arithmetic, logical), bitwise),
          fill_integers<T>,    combine_integers<T>, true};
}

template <class T>
Element floating(const char* name, MPI_Datatype type) {
  return {base<T>(name, type), alignof(T), arithmetic, fill_floats<T>, combine_floats<T>, false};
}

template <class T>
Element complex(const char* name, MPI_Datatype type) {
  return {base<std::complex<T>>(name, type),
          alignof(T),
          {{"sum", MPI_SUM}, {"prod", MPI_PROD}},
          fill_complex<T>,
          combine_complex<T>,
          false};
}

template <class T>
Element pair(const char* name, MPI_Datatype type) {
  Element element{base<Pair<T>>(name, type),
                  alignof(Pair<T>),
                  {{"minloc", MPI_MINLOC}, {"maxloc", MPI_MAXLOC}},
                  fill_pairs<T>,
                  combine_pairs<T>,
                  true};
  for (std::size_t at = sizeof(T); at < offsetof(Pair<T>, place); ++at) element.base.padding[at] = 1;
  for (std::size_t at = offsetof(Pair<T>, place) + sizeof(int); at < sizeof(Pair<T>); ++at)
    element.base.padding[at] = 1;
  return element;
}

}  // namespace

bool has_gaps(const Element& element) {
  return std::ranges::find(element.base.padding, std::uint8_t{1}) != element.base.padding.end();
}

const std::vector<Element>& elements() {
  static const std::vector<Element> all{
      integer<std::int8_t>("int8", MPI_INT8_T),
      integer<std::uint8_t>("uint8", MPI_UINT8_T),
      integer<short>("short", MPI_SHORT),
      integer<std::uint16_t>("uint16", MPI_UINT16_T),
      integer<int>("int", MPI_INT),
      integer<unsigned>("unsigned", MPI_UNSIGNED),
      integer<long>("long", MPI_LONG),
      integer<std::uint64_t>("uint64", MPI_UINT64_T),
      floating<float>("float", MPI_FLOAT),
      floating<double>("double", MPI_DOUBLE),
      complex<float>("complex", MPI_C_FLOAT_COMPLEX),
      complex<double>("double complex", MPI_C_DOUBLE_COMPLEX),
      {base<std::uint8_t>("byte", MPI_BYTE), 1, bitwise, fill_integers<std::uint8_t>, combine_integers<std::uint8_t>,
       true},
      pair<short>("short and place", MPI_SHORT_INT),
      pair<int>("int and place", MPI_2INT),
      pair<long>("long and place", MPI_LONG_INT),
      pair<float>("float and place", MPI_FLOAT_INT),
      pair<double>("double and place", MPI_DOUBLE_INT),
  };
  return all;
}

}  // namespace crosslane::tests
