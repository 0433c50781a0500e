// See reduction.h.
#include "collectives/reduction.h"

#include "support/check.h"

#include <complex>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace crosslane::tests {
namespace {

// Where the elements of a type lie, for the user-defined operations: MPI hands them a datatype and a length.
struct Known {
  const Type* type;
  std::size_t bytes;
};

struct KnownTypes {
  std::mutex mutex;
  std::map<MPI_Datatype, Known> types;
};

KnownTypes& known_types() {
  static KnownTypes all;
  return all;
}

Known known(MPI_Datatype handle) {
  auto& all = known_types();
  const std::lock_guard lock(all.mutex);
  const auto found = all.types.find(handle);
  if (found == all.types.end()) {
    report_failure("a user-defined operation was given a datatype that no call of this test has named");
    std::abort();
  }
  return found->second;
}

// Applies combine(in, inout) to each base element.
template <class Combine>
void for_each_element(void* in, void* inout, const int* length, MPI_Datatype* handle, Combine&& combine) {
  const Known it = known(*handle);
  for (int i = 0; i < *length; ++i) {
    for (const auto offset : it.type->offsets) {
      const auto at = i * it.type->extent + offset;
      combine(static_cast<std::byte*>(in) + at, static_cast<std::byte*>(inout) + at, it.bytes);
    }
  }
}

void exclusive_or(void* in, void* inout, int* length, MPI_Datatype* handle) {
  for_each_element(in, inout, length, handle, [](const std::byte* left, std::byte* right, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) right[i] ^= left[i];
  });
}

// x -> a x + b modulo 2^32, composed from left to right: associative and not commutative.
struct Affine {
  std::uint32_t a, b;
};

void compose(void* in, void* inout, int* length, MPI_Datatype* handle) {
  for_each_element(in, inout, length, handle, [](const std::byte* left, std::byte* right, std::size_t) {
    Affine first{}, second{};
    std::memcpy(&first, left, sizeof first);
    std::memcpy(&second, right, sizeof second);
    const Affine both{first.a * second.a, second.a * first.b + second.b};
    std::memcpy(right, &both, sizeof both);
  });
}

template <class Value>
void put(std::byte* to, const Value& value) {
  std::memcpy(to, &value, sizeof value);
}

// Small whole numbers: sums and products of a few are exact in every type.
template <class Value>
void fill_small(Random& random, std::byte* value) {
  put(value, static_cast<Value>(random.between(0, 3)));
}
template <class Value>
void fill_bits(Random& random, std::byte* value) {
  put(value, static_cast<Value>(random.next()));
}
template <class Value>
void fill_truth(Random& random, std::byte* value) {
  put(value, static_cast<Value>(random.chance(70)));
}
void fill_byte(Random& random, std::byte* value) { put(value, static_cast<std::uint8_t>(random.next())); }
void fill_affine(Random& random, std::byte* value) {
  put(value, Affine{static_cast<std::uint32_t>(random.next()) | 1U, static_cast<std::uint32_t>(random.next())});
}
template <class First>
void fill_pair(Random& random, std::byte* value) {
  struct Pair {
    First value;
    int place;
  };
  const auto first = static_cast<First>(random.between(-3, 3));
  const int place = random.between(0, 1000);
  std::memcpy(value + offsetof(Pair, value), &first, sizeof first);
  std::memcpy(value + offsetof(Pair, place), &place, sizeof place);
}

struct Choice {
  Base base;
  void (*fill)(Random&, std::byte*);
};

template <class Value>
Choice choice(const char* name, MPI_Datatype type, void (*fill)(Random&, std::byte*) = fill_small<Value>) {
  Base base{name, type, sizeof(Value), std::vector<std::uint8_t>(sizeof(Value), 0)};
  if constexpr (std::is_same_v<Value, long double>)
    for (std::size_t i = 10; i < sizeof(Value); ++i) base.padding[i] = 1;
  return {std::move(base), fill};
}

template <class First>
Choice pair_choice(const char* name, MPI_Datatype type) {
  struct Pair {
    First value;
    int place;
  };
  Base base{name, type, sizeof(Pair), std::vector<std::uint8_t>(sizeof(Pair), 1)};
  const std::size_t first = std::is_same_v<First, long double> ? 10 : sizeof(First);
  for (std::size_t i = 0; i < first; ++i) base.padding[i] = 0;
  for (std::size_t i = 0; i < sizeof(int); ++i) base.padding[offsetof(Pair, place) + i] = 0;
  return {std::move(base), fill_pair<First>};
}

#define CROSSLANE_CHOICE(Value, type) choice<Value>(#type, type)
const std::vector<Choice>& integers() {
  static const std::vector<Choice> all{CROSSLANE_CHOICE(signed char, MPI_SIGNED_CHAR),
                                       CROSSLANE_CHOICE(unsigned char, MPI_UNSIGNED_CHAR),
                                       CROSSLANE_CHOICE(short, MPI_SHORT),
                                       CROSSLANE_CHOICE(unsigned short, MPI_UNSIGNED_SHORT),
                                       CROSSLANE_CHOICE(int, MPI_INT),
                                       CROSSLANE_CHOICE(unsigned, MPI_UNSIGNED),
                                       CROSSLANE_CHOICE(long, MPI_LONG),
                                       CROSSLANE_CHOICE(unsigned long, MPI_UNSIGNED_LONG),
                                       CROSSLANE_CHOICE(long long, MPI_LONG_LONG_INT),
                                       CROSSLANE_CHOICE(unsigned long long, MPI_UNSIGNED_LONG_LONG),
                                       CROSSLANE_CHOICE(std::int8_t, MPI_INT8_T),
                                       CROSSLANE_CHOICE(std::uint8_t, MPI_UINT8_T),
                                       CROSSLANE_CHOICE(std::int16_t, MPI_INT16_T),
                                       CROSSLANE_CHOICE(std::uint16_t, MPI_UINT16_T),
                                       CROSSLANE_CHOICE(std::int32_t, MPI_INT32_T),
                                       CROSSLANE_CHOICE(std::uint32_t, MPI_UINT32_T),
                                       CROSSLANE_CHOICE(std::int64_t, MPI_INT64_T),
                                       CROSSLANE_CHOICE(std::uint64_t, MPI_UINT64_T),
                                       CROSSLANE_CHOICE(MPI_Aint, MPI_AINT),
                                       CROSSLANE_CHOICE(MPI_Offset, MPI_OFFSET),
                                       CROSSLANE_CHOICE(MPI_Count, MPI_COUNT)};
  return all;
}
const std::vector<Choice>& reals() {
  static const std::vector<Choice> all{CROSSLANE_CHOICE(float, MPI_FLOAT), CROSSLANE_CHOICE(double, MPI_DOUBLE),
                                       CROSSLANE_CHOICE(long double, MPI_LONG_DOUBLE)};
  return all;
}
const std::vector<Choice>& complex_numbers() {
  static const std::vector<Choice> all{CROSSLANE_CHOICE(std::complex<float>, MPI_C_FLOAT_COMPLEX),
                                       CROSSLANE_CHOICE(std::complex<double>, MPI_C_DOUBLE_COMPLEX)};
  return all;
}
const std::vector<Choice>& pairs() {
  static const std::vector<Choice> all{pair_choice<float>("MPI_FLOAT_INT", MPI_FLOAT_INT),
                                       pair_choice<double>("MPI_DOUBLE_INT", MPI_DOUBLE_INT),
                                       pair_choice<long>("MPI_LONG_INT", MPI_LONG_INT),
                                       pair_choice<int>("MPI_2INT", MPI_2INT),
                                       pair_choice<short>("MPI_SHORT_INT", MPI_SHORT_INT),
                                       pair_choice<long double>("MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT)};
  return all;
}
const std::vector<Choice>& bits() {
  static const std::vector<Choice> all{choice<std::uint8_t>("MPI_BYTE", MPI_BYTE, fill_bits<std::uint8_t>),
                                       choice<int>("MPI_INT", MPI_INT, fill_bits<int>),
                                       choice<std::uint64_t>("MPI_UINT64_T", MPI_UINT64_T, fill_bits<std::uint64_t>),
                                       choice<std::int16_t>("MPI_INT16_T", MPI_INT16_T, fill_bits<std::int16_t>)};
  return all;
}
const std::vector<Choice>& truths() {
  static const std::vector<Choice> all{
      choice<bool>("MPI_C_BOOL", MPI_C_BOOL, fill_truth<bool>), choice<int>("MPI_INT", MPI_INT, fill_truth<int>),
      choice<unsigned char>("MPI_UNSIGNED_CHAR", MPI_UNSIGNED_CHAR, fill_truth<unsigned char>)};
  return all;
}

struct Predefined {
  const char* name;
  MPI_Op op;
  std::vector<const std::vector<Choice>*> takes;
};

const std::vector<Predefined>& predefined() {
  static const std::vector<Predefined> all{{"MPI_MAX", MPI_MAX, {&integers(), &reals()}},
                                           {"MPI_MIN", MPI_MIN, {&integers(), &reals()}},
                                           {"MPI_SUM", MPI_SUM, {&integers(), &reals(), &complex_numbers()}},
                                           {"MPI_PROD", MPI_PROD, {&integers(), &reals(), &complex_numbers()}},
                                           {"MPI_LAND", MPI_LAND, {&truths()}},
                                           {"MPI_LOR", MPI_LOR, {&truths()}},
                                           {"MPI_LXOR", MPI_LXOR, {&truths()}},
                                           {"MPI_BAND", MPI_BAND, {&bits()}},
                                           {"MPI_BOR", MPI_BOR, {&bits()}},
                                           {"MPI_BXOR", MPI_BXOR, {&bits()}},
                                           {"MPI_MINLOC", MPI_MINLOC, {&pairs()}},
                                           {"MPI_MAXLOC", MPI_MAXLOC, {&pairs()}}};
  return all;
}

// Two 32-bit numbers as one element.
const Base& affine_base() {
  static const Base base = [] {
    Base result{"{uint32, uint32}", MPI_DATATYPE_NULL, sizeof(Affine), std::vector<std::uint8_t>(sizeof(Affine), 0)};
    MPI_Type_contiguous(2, MPI_UINT32_T, &result.type);
    MPI_Type_commit(&result.type);
    return result;
  }();
  return base;
}

// A user-defined operation finds its type for as long as the reduction lives.
std::shared_ptr<Reduction> registered(Reduction reduction) {
  std::shared_ptr<Reduction> shared(new Reduction(std::move(reduction)), [](Reduction* gone) {
    {
      const std::lock_guard lock(known_types().mutex);
      known_types().types.erase(gone->type.handle);
    }
    delete gone;
  });
  const std::lock_guard lock(known_types().mutex);
  known_types().types.insert_or_assign(shared->type.handle, Known{&shared->type, shared->base->extent});
  return shared;
}

}  // namespace

Reductions::Reductions() {
  MPI_Op_create(exclusive_or, 1, &user_commutative_);
  MPI_Op_create(compose, 0, &user_ordered_);
}

Reductions::~Reductions() {
  MPI_Op_free(&user_commutative_);
  MPI_Op_free(&user_ordered_);
}

std::shared_ptr<Reduction> Reductions::pick(Random& common, bool user_defined) const {
  Reduction reduction;
  const auto kind = common.below(user_defined ? 10 : 6);
  if (kind < 6) {
    const auto& operation = common.pick(predefined());
    const auto& element = common.pick(*common.pick(operation.takes));
    reduction.op = operation.op;
    reduction.base = &element.base;
    reduction.fill = element.fill;
    reduction.type.handle = element.base.type;
    reduction.type.offsets = {0};
    reduction.type.extent = reduction.type.true_ub = static_cast<MPI_Aint>(element.base.extent);
    reduction.text = fmt::format("{} on {}", operation.name, element.base.name);
    return std::make_shared<Reduction>(std::move(reduction));
  }
  // Types of different calls are different handles: a dup keeps basic types apart.
  const bool ordered = common.chance(60);
  static const Base byte{"MPI_BYTE", MPI_BYTE, 1, {0}};
  reduction.op = ordered ? user_ordered_ : user_commutative_;
  reduction.base = ordered ? &affine_base() : &byte;
  reduction.fill = ordered ? fill_affine : fill_byte;
  reduction.type = random_type(common, *reduction.base, common.between(2, 6));
  while (reduction.type.most < 1 << 20) reduction.type = random_type(common, *reduction.base, common.between(2, 6));
  reduction.text =
      fmt::format("{} user-defined operation on {}", ordered ? "ordered" : "commutative", reduction.type.text);
  return registered(std::move(reduction));
}

}  // namespace crosslane::tests
