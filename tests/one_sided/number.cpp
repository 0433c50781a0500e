// See number.h.
#include "one_sided/number.h"

#include "one_sided/plain.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace crosslane::tests {
namespace {

template <class Value>
std::vector<std::byte> small_values(std::uint64_t seed, std::size_t count) {
  constexpr std::uint64_t most = sizeof(Value) == 1 ? 100 : 1000;
  Random random(seed);
  std::vector<std::byte> bytes(count * sizeof(Value));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Value>(random.below(most));
    std::memcpy(bytes.data() + i * sizeof(Value), &value, sizeof value);
  }
  return bytes;
}

const std::vector<Operator>& bitwise() {
  static const std::vector<Operator> all{{"MPI_MAX", MPI_MAX},   {"MPI_MIN", MPI_MIN}, {"MPI_BXOR", MPI_BXOR},
                                         {"MPI_BAND", MPI_BAND}, {"MPI_BOR", MPI_BOR}, {"MPI_REPLACE", MPI_REPLACE}};
  return all;
}

// On any bytes. `brief`: of one or two each.
std::vector<Operator> of_unsigned(bool brief) {
  auto all = bitwise();
  if (left_out().unsigned_as_signed)
    std::erase_if(all, [](const Operator& each) { return each.op == MPI_MAX || each.op == MPI_MIN; });
  if (!(brief && left_out().sums_saturate)) all.push_back({"MPI_SUM", MPI_SUM});
  all.push_back({"MPI_PROD", MPI_PROD});
  return all;
}

}  // namespace

const std::vector<Operator>& Number::ordered() const {
  static const std::vector<Operator> brief = of_unsigned(true), without_sign = of_unsigned(false);
  static const std::vector<Operator> real{
      {"MPI_SUM", MPI_SUM}, {"MPI_MAX", MPI_MAX}, {"MPI_MIN", MPI_MIN}, {"MPI_REPLACE", MPI_REPLACE}};
  static const std::vector<Operator> pair{
      {"MPI_MAXLOC", MPI_MAXLOC}, {"MPI_MINLOC", MPI_MINLOC}, {"MPI_REPLACE", MPI_REPLACE}};
  switch (kind) {
    case Kind::with_sign:
      return bitwise();
    case Kind::without_sign:
      return bytes <= 2 ? brief : without_sign;
    case Kind::real:
      return real;
    case Kind::pair:
      break;
  }
  return pair;
}

const std::vector<Operator>& Number::commuting() const {
  static const std::vector<Operator> whole{{"MPI_SUM", MPI_SUM},   {"MPI_MAX", MPI_MAX},   {"MPI_MIN", MPI_MIN},
                                           {"MPI_BXOR", MPI_BXOR}, {"MPI_BAND", MPI_BAND}, {"MPI_BOR", MPI_BOR}};
  static const std::vector<Operator> real{{"MPI_SUM", MPI_SUM}, {"MPI_MAX", MPI_MAX}, {"MPI_MIN", MPI_MIN}};
  static const std::vector<Operator> pair{{"MPI_MAXLOC", MPI_MAXLOC}, {"MPI_MINLOC", MPI_MINLOC}};
  return kind == Kind::real ? real : kind == Kind::pair ? pair : whole;
}

std::vector<std::byte> Number::small(std::uint64_t seed, std::size_t count) const {
  if (kind == Kind::real) return small_values<double>(seed, count);
  if (kind == Kind::pair) return small_values<int>(seed, 2 * count);
  switch (bytes) {
    case 1:
      return small_values<std::uint8_t>(seed, count);
    case 2:
      return small_values<std::uint16_t>(seed, count);
    case 4:
      return small_values<std::uint32_t>(seed, count);
    default:
      return small_values<std::uint64_t>(seed, count);
  }
}

Base Number::base() const { return {std::string(name), type, bytes, std::vector<std::uint8_t>(bytes, 0)}; }

const Number& int_number() {
  static const Number number{"MPI_INT", MPI_INT, sizeof(int), Number::Kind::with_sign};
  return number;
}

const Number& long_number() {
  static const Number number{"MPI_LONG", MPI_LONG, sizeof(long), Number::Kind::with_sign};
  return number;
}

const Number& double_number() {
  static const Number number{"MPI_DOUBLE", MPI_DOUBLE, sizeof(double), Number::Kind::real};
  return number;
}

const Number& byte_number() {
  static const Number number{"MPI_UINT8_T", MPI_UINT8_T, 1, Number::Kind::without_sign};
  return number;
}

const Number& any_whole(Random& random, std::size_t most_bytes) {
  static const std::vector<Number> all{
      byte_number(),
      {"MPI_UNSIGNED_SHORT", MPI_UNSIGNED_SHORT, sizeof(short), Number::Kind::without_sign},
      {"MPI_UNSIGNED", MPI_UNSIGNED, sizeof(int), Number::Kind::without_sign},
      int_number(),
      {"MPI_UNSIGNED_LONG", MPI_UNSIGNED_LONG, sizeof(long), Number::Kind::without_sign},
      long_number(),
      {"MPI_2INT", MPI_2INT, 2 * sizeof(int), Number::Kind::pair}};
  const Number& choice = random.pick(all);  // always drawn
  return choice.bytes <= most_bytes ? choice : byte_number();
}

const Operator& no_operation() {
  static const Operator none{"MPI_NO_OP", MPI_NO_OP};
  return none;
}

const Operator& replace() {
  static const Operator replacing{"MPI_REPLACE", MPI_REPLACE};
  return replacing;
}

}  // namespace crosslane::tests
