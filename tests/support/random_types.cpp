// See random_types.h.
#include "support/random_types.h"

#include "support/check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace crosslane::tests {
namespace {

struct Tuple {
  std::int32_t number;
  double value;
  char letter;
};

template <class First>
struct Pair {
  First value;
  int place;
};

template <class First>
Base pair(const char* name, MPI_Datatype type) {
  using Both = Pair<First>;
  Base base{name, type, sizeof(Both), std::vector<std::uint8_t>(sizeof(Both), 1)};
  constexpr std::size_t value = std::is_same_v<First, long double> ? 10 : sizeof(First);
  std::fill_n(base.padding.begin(), value, std::uint8_t{0});
  std::fill_n(base.padding.begin() + static_cast<std::ptrdiff_t>(offsetof(Both, place)), sizeof(int), std::uint8_t{0});
  return base;
}

Base basic(const char* name, MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return {name, type, static_cast<std::size_t>(size), std::vector<std::uint8_t>(static_cast<std::size_t>(size), 0)};
}

Base tuple() {
  const std::array<int, 3> lengths{1, 1, 1};
  const std::array<MPI_Aint, 3> places{offsetof(Tuple, number), offsetof(Tuple, value), offsetof(Tuple, letter)};
  const std::array<MPI_Datatype, 3> types{MPI_INT32_T, MPI_DOUBLE, MPI_CHAR};
  MPI_Datatype bare = MPI_DATATYPE_NULL, whole = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(3, lengths.data(), places.data(), types.data(), &bare);
  MPI_Type_create_resized(bare, 0, sizeof(Tuple), &whole);
  MPI_Type_commit(&whole);
  MPI_Type_free(&bare);
  Base base{"{int32, double, char}", whole, sizeof(Tuple), std::vector<std::uint8_t>(sizeof(Tuple), 1)};
  for (std::size_t i = 0; i < places.size(); ++i) {
    int size = 0;
    MPI_Type_size(types.at(i), &size);
    std::fill_n(base.padding.begin() + places.at(i), size, std::uint8_t{0});
  }
  return base;
}

// What a constructor makes: the handle and the offsets of its elements.
struct Made {
  MPI_Datatype handle;
  std::vector<MPI_Aint> offsets;
  std::string text;
  std::int64_t most = std::numeric_limits<int>::max();
};

std::vector<MPI_Aint> row(int elements, MPI_Aint stride) {
  std::vector<MPI_Aint> result;
  for (int i = 0; i < elements; ++i) result.push_back(i * stride);
  return result;
}

Made contiguous(const Base& base, int elements) {
  Made made{MPI_DATATYPE_NULL, row(elements, static_cast<MPI_Aint>(base.extent)),
            fmt::format("contiguous({})", elements)};
  MPI_Type_contiguous(elements, base.type, &made.handle);
  return made;
}

Made vector(Random& random, const Base& base, int elements, bool bytes) {
  const int length = random_divisor(random, elements, elements);
  const int stride = length + random.between(0, 3);
  const auto x = static_cast<MPI_Aint>(base.extent);
  Made made{
      MPI_DATATYPE_NULL, {}, fmt::format("{}vector({}, {}, {})", bytes ? "h" : "", elements / length, length, stride)};
  for (int block = 0; block < elements / length; ++block)
    for (int i = 0; i < length; ++i) made.offsets.push_back((MPI_Aint{block} * stride + i) * x);
  if (bytes)
    MPI_Type_create_hvector(elements / length, length, stride * x, base.type, &made.handle);
  else
    MPI_Type_vector(elements / length, length, stride, base.type, &made.handle);
  return made;
}

// Blocks of random lengths with gaps, in random order; `first` may be negative.
Made indexed(Random& random, const Base& base, int elements, int kind) {
  std::vector<int> lengths, places;
  int at = kind == 1 ? -random.between(0, 2 * elements) : random.between(0, 2);
  for (int left = elements; left > 0;) {
    const int length = kind == 2 ? random_divisor(random, elements, elements) : random.between(1, left);
    if (kind == 2) {  // all blocks of one length
      for (int i = 0; i < elements / length; ++i) {
        lengths.push_back(length);
        places.push_back(at);
        at += length + random.between(0, 2);
      }
      break;
    }
    lengths.push_back(length);
    places.push_back(at);
    at += length + random.between(0, 3);
    left -= length;
  }
  std::vector<std::size_t> order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(order);
  const auto x = static_cast<MPI_Aint>(base.extent);
  Made made{MPI_DATATYPE_NULL, {}, {}};
  std::vector<int> shuffled_lengths, shuffled_places;
  std::vector<MPI_Aint> byte_places;
  for (const auto i : order) {
    shuffled_lengths.push_back(lengths[i]);
    shuffled_places.push_back(places[i]);
    byte_places.push_back(places[i] * x);
    for (int j = 0; j < lengths[i]; ++j) made.offsets.push_back((places[i] + j) * x);
  }
  const int blocks = static_cast<int>(order.size());
  if (kind == 0) {
    made.text = fmt::format("indexed({} blocks)", blocks);
    MPI_Type_indexed(blocks, shuffled_lengths.data(), shuffled_places.data(), base.type, &made.handle);
  } else if (kind == 1) {
    made.text = fmt::format("hindexed({} blocks, negative)", blocks);
    MPI_Type_create_hindexed(blocks, shuffled_lengths.data(), byte_places.data(), base.type, &made.handle);
  } else if (kind == 2) {
    made.text = fmt::format("indexed_block({} blocks)", blocks);
    MPI_Type_create_indexed_block(blocks, shuffled_lengths[0], shuffled_places.data(), base.type, &made.handle);
  } else {
    made.text = fmt::format("struct({} blocks)", blocks);
    const std::vector<MPI_Datatype> types(order.size(), base.type);
    MPI_Type_create_struct(blocks, shuffled_lengths.data(), byte_places.data(), types.data(), &made.handle);
  }
  return made;
}

Made subarray(Random& random, const Base& base, int elements) {
  const int columns = random_divisor(random, elements, elements), rows = elements / columns;
  const std::array<int, 2> part{rows, columns};
  const std::array<int, 2> start{random.between(0, 2), random.between(0, 2)};
  const std::array<int, 2> whole{rows + start[0] + random.between(0, 2), columns + start[1] + random.between(0, 2)};
  Made made{MPI_DATATYPE_NULL, {}, fmt::format("subarray({}x{} of {}x{})", rows, columns, whole[0], whole[1])};
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      made.offsets.push_back((MPI_Aint{start[0] + r} * whole[1] + start[1] + c) * static_cast<MPI_Aint>(base.extent));
  MPI_Type_create_subarray(2, whole.data(), part.data(), start.data(), MPI_ORDER_C, base.type, &made.handle);
  return made;
}

// A contiguous type whose extent is larger than its data, with a lower bound of its own.
Made resized(Random& random, const Base& base, int elements) {
  Made inner = contiguous(base, elements);
  const auto x = static_cast<MPI_Aint>(base.extent);
  const MPI_Aint lb = -x * random.between(0, 2), extent = x * (elements + random.between(0, 3)) - lb;
  Made made{MPI_DATATYPE_NULL, inner.offsets, fmt::format("resized({}, {} of {})", inner.text, lb, extent)};
  MPI_Type_create_resized(inner.handle, lb, extent, &made.handle);
  MPI_Type_free(&inner.handle);
  return made;
}

// A matrix's column: elements that follow each other lie between each other's.
Made column(Random& random, const Base& base, int elements) {
  const int stride = random.between(2, 40);
  const auto x = static_cast<MPI_Aint>(base.extent);
  Made made{MPI_DATATYPE_NULL, row(elements, stride * x), fmt::format("column({} of {})", elements, stride), stride};
  MPI_Datatype whole = MPI_DATATYPE_NULL;
  MPI_Type_vector(elements, 1, stride, base.type, &whole);
  MPI_Type_create_resized(whole, 0, x, &made.handle);
  MPI_Type_free(&whole);
  return made;
}

Made duplicate(const Base& base) {
  Made made{MPI_DATATYPE_NULL, {0}, "dup"};
  MPI_Type_dup(base.type, &made.handle);
  return made;
}

// Two of another type, side by side with a gap.
Made twice(Random& random, const Base& base, int elements);

Made any(Random& random, const Base& base, int elements, bool nested) {
  switch (random.below(nested ? 8 : 11)) {
    case 0:
      return contiguous(base, elements);
    case 1:
      return vector(random, base, elements, false);
    case 2:
      return vector(random, base, elements, true);
    case 3:
      return indexed(random, base, elements, 0);
    case 4:
      return indexed(random, base, elements, 1);
    case 5:
      return indexed(random, base, elements, 2);
    case 6:
      return indexed(random, base, elements, 3);
    case 7:
      return subarray(random, base, elements);
    case 8:
      return resized(random, base, elements);
    case 9:
      return column(random, base, elements);
    default:
      return elements % 2 == 0 ? twice(random, base, elements)
             : elements == 1   ? duplicate(base)
                               : contiguous(base, elements);
  }
}

Made twice(Random& random, const Base& base, int elements) {
  Made inner = any(random, base, elements / 2, true);
  const auto [low, high] = std::minmax_element(inner.offsets.begin(), inner.offsets.end());
  const MPI_Aint stride = *high - *low + static_cast<MPI_Aint>(base.extent) * random.between(1, 3);
  Made made{MPI_DATATYPE_NULL, inner.offsets, fmt::format("hvector(2, {})", inner.text)};
  for (const auto offset : inner.offsets) made.offsets.push_back(offset + stride);
  MPI_Type_create_hvector(2, 1, stride, inner.handle, &made.handle);
  MPI_Type_free(&inner.handle);
  return made;
}

}  // namespace

const std::vector<Base>& bases() {
  static const std::vector<Base> all = [] {
    std::vector<Base> result{basic("MPI_CHAR", MPI_CHAR),
                             basic("MPI_SHORT", MPI_SHORT),
                             basic("MPI_INT", MPI_INT),
                             basic("MPI_UNSIGNED_LONG", MPI_UNSIGNED_LONG),
                             basic("MPI_FLOAT", MPI_FLOAT),
                             basic("MPI_DOUBLE", MPI_DOUBLE),
                             basic("MPI_BYTE", MPI_BYTE),
                             basic("MPI_C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX),
                             basic("MPI_INT8_T", MPI_INT8_T),
                             basic("MPI_UINT64_T", MPI_UINT64_T),
                             basic("MPI_WCHAR", MPI_WCHAR),
                             basic("MPI_C_BOOL", MPI_C_BOOL),
                             pair<double>("MPI_DOUBLE_INT", MPI_DOUBLE_INT),
                             pair<short>("MPI_SHORT_INT", MPI_SHORT_INT),
                             tuple()};
    return result;
  }();
  return all;
}

Type::Type(Type&& other) noexcept
    : handle(other.handle),
      offsets(std::move(other.offsets)),
      lb(other.lb),
      extent(other.extent),
      true_lb(other.true_lb),
      true_ub(other.true_ub),
      most(other.most),
      text(std::move(other.text)),
      owned_(std::exchange(other.owned_, false)) {}

Type& Type::operator=(Type&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle = other.handle;
  offsets = std::move(other.offsets);
  lb = other.lb;
  extent = other.extent;
  true_lb = other.true_lb;
  true_ub = other.true_ub;
  most = other.most;
  text = std::move(other.text);
  owned_ = std::exchange(other.owned_, false);
  return *this;
}

void Type::release() {
  if (std::exchange(owned_, false)) MPI_Type_free(&handle);
}

MPI_Aint Type::begin(std::int64_t count) const {
  return count == 0 ? 0 : true_lb + std::min<MPI_Aint>(0, (count - 1) * extent);
}

MPI_Aint Type::end(std::int64_t count) const {
  return count == 0 ? 0 : true_ub + std::max<MPI_Aint>(0, (count - 1) * extent);
}

Type base_type_of(const Base& base) {
  Type type;
  type.handle = base.type;
  type.offsets = {0};
  type.extent = type.true_ub = static_cast<MPI_Aint>(base.extent);
  type.text = base.name;
  return type;
}

Type random_type(Random& random, const Base& base, int elements) {
  Type type;
  if (elements == 1 && random.chance(50)) {
    type.handle = base.type;
    type.offsets = {0};
  } else {
    Made made = any(random, base, elements, false);
    type.handle = made.handle;
    type.offsets = std::move(made.offsets);
    type.text = std::move(made.text) + " of ";
    type.most = made.most;
    type.owned_ = true;
    MPI_Type_commit(&type.handle);
  }
  type.text += base.name;
  MPI_Aint true_extent = 0;
  MPI_Type_get_extent(type.handle, &type.lb, &type.extent);
  MPI_Type_get_true_extent(type.handle, &type.true_lb, &true_extent);
  type.true_ub = type.true_lb + true_extent;
  return type;
}

int random_divisor(Random& random, int number, int most) {
  std::vector<int> divisors;
  for (int i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) divisors.push_back(i);
  return random.pick(divisors);
}

}  // namespace crosslane::tests
