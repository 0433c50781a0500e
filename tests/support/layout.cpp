// The model of datatypes: every constructor but resized and subarray places whole copies of the old type at
// displacements, in the order of the type map (MPI 5.0, section 5.1). It must not know Crosslane.
#include "support/layout.h"

#include "support/check.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace crosslane::tests {
namespace {

struct Record {  // the struct unit: a gap after the first member and at the end
  char letter;
  double number;
  short small;
};

}  // namespace

Units::Units() {
  const auto basic = [this](const char* text, MPI_Datatype type, std::size_t bytes) {
    units_.push_back(
        {text, type, {{0, bytes}}, static_cast<std::ptrdiff_t>(bytes), bytes, 1, static_cast<std::ptrdiff_t>(bytes)});
  };
  const auto pair = [this](const char* text, MPI_Datatype type, std::size_t value, std::ptrdiff_t index_at,
                           std::ptrdiff_t extent) {
    units_.push_back(
        {text, type, {{0, value}, {index_at, sizeof(int)}}, extent, value + sizeof(int), 2, extent % 8 == 0 ? 8 : 4});
  };
  basic("byte", MPI_BYTE, 1);
  basic("short", MPI_SHORT, sizeof(short));
  basic("int", MPI_INT, sizeof(int));
  basic("float", MPI_FLOAT, sizeof(float));
  basic("double", MPI_DOUBLE, sizeof(double));
  basic("int64", MPI_INT64_T, sizeof(std::int64_t));
  basic("double complex", MPI_C_DOUBLE_COMPLEX, 2 * sizeof(double));
  pair("double_int", MPI_DOUBLE_INT, sizeof(double), 8, 16);
  pair("float_int", MPI_FLOAT_INT, sizeof(float), 4, 8);
  pair("short_int", MPI_SHORT_INT, sizeof(short), 4, 8);
  pair("long_int", MPI_LONG_INT, sizeof(long), 8, 16);

  const std::array<int, 3> lengths{1, 1, 1};
  const std::array<MPI_Aint, 3> at{offsetof(Record, letter), offsetof(Record, number), offsetof(Record, small)};
  const std::array<MPI_Datatype, 3> types{MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
  MPI_Datatype loose = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_create_struct(3, lengths.data(), at.data(), types.data(), &loose));
  CROSSLANE_MPI(MPI_Type_create_resized(loose, 0, sizeof(Record), &record_));
  CROSSLANE_MPI(MPI_Type_commit(&record_));
  CROSSLANE_MPI(MPI_Type_free(&loose));
  units_.push_back({"record",
                    record_,
                    {{at[0], 1}, {at[1], sizeof(double)}, {at[2], sizeof(short)}},
                    sizeof(Record),
                    1 + sizeof(double) + sizeof(short),
                    3,
                    alignof(Record)});
}

Units::~Units() { MPI_Type_free(&record_); }

Layout::Layout(const Unit& unit) : unit_(&unit), type_(unit.type), units_{0}, upper_(unit.extent), text_(unit.text) {}

Layout Layout::random(Random& random, const Unit& unit, std::size_t most_units) {
  Layout layout(unit);
  for (auto depth = random.below(4); depth > 0; --depth) layout.derive(random, most_units);
  if (layout.owned_) CROSSLANE_MPI(MPI_Type_commit(&layout.type_));
  layout.check_against_mpi();
  return layout;
}

Layout::~Layout() { release(); }

Layout::Layout(Layout&& other) noexcept
    : unit_(other.unit_),
      type_(other.type_),
      owned_(std::exchange(other.owned_, false)),
      units_(std::move(other.units_)),
      lower_(other.lower_),
      upper_(other.upper_),
      text_(std::move(other.text_)) {}

Layout& Layout::operator=(Layout&& other) noexcept {
  if (this == &other) return *this;
  release();
  unit_ = other.unit_;
  type_ = other.type_;
  owned_ = std::exchange(other.owned_, false);
  units_ = std::move(other.units_);
  lower_ = other.lower_;
  upper_ = other.upper_;
  text_ = std::move(other.text_);
  return *this;
}

void Layout::release() {
  if (owned_) MPI_Type_free(&type_);
  owned_ = false;
}

// Copies of the old type at `displacements` make the new one.
void Layout::replace(MPI_Datatype type, const std::vector<std::ptrdiff_t>& displacements) {
  std::vector<std::ptrdiff_t> units;
  units.reserve(units_.size() * displacements.size());
  std::ptrdiff_t lower = displacements.front() + lower_, upper = displacements.front() + upper_;
  for (const auto displacement : displacements) {
    for (const auto unit : units_) units.push_back(displacement + unit);
    lower = std::min(lower, displacement + lower_);
    upper = std::max(upper, displacement + upper_);
  }
  release();
  type_ = type;
  owned_ = true;
  units_ = std::move(units);
  lower_ = lower;
  upper_ = upper;
}

void Layout::derive(Random& random, std::size_t most_units) {
  const auto old_extent = extent();
  const int most = static_cast<int>(std::min<std::size_t>(8, most_units / units_.size()));
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::vector<std::ptrdiff_t> at;
  const auto vector_of = [&](int count, int length, std::ptrdiff_t stride) {
    for (int block = 0; block < count; ++block)
      for (int i = 0; i < length; ++i) at.push_back(block * stride + i * old_extent);
  };
  // Blocks in random order with random gaps between them, as lengths and displacements in extents.
  std::vector<int> lengths, starts;
  const auto blocks = [&](bool equal) {
    const int length = random.between(1, std::max(1, std::min(3, most)));
    const int count = random.between(1, std::max(1, most / length));
    int start = random.between(0, 2);
    for (int block = 0; block < count; ++block) {
      lengths.push_back(equal ? length : random.between(block == 0 ? 1 : 0, length));
      starts.push_back(start);
      start += lengths.back() + random.between(0, 2);
    }
    for (std::size_t i = lengths.size(); i > 1; --i) {
      const auto j = random.below(i);
      std::swap(lengths[i - 1], lengths[j]);
      std::swap(starts[i - 1], starts[j]);
    }
    for (std::size_t block = 0; block < lengths.size(); ++block)
      for (int i = 0; i < lengths[block]; ++i) at.push_back((starts[block] + i) * old_extent);
  };
  const auto in_bytes = [&] {
    std::vector<MPI_Aint> bytes;
    for (const auto start : starts) bytes.push_back(start * old_extent);
    return bytes;
  };
  const auto block_count = [&] { return static_cast<int>(starts.size()); };

  switch (random.below(most < 1 ? 2 : 11)) {
    case 0: {
      CROSSLANE_MPI(MPI_Type_dup(type_, &type));
      text_ = "dup(" + text_ + ")";
      at = {0};
      break;
    }
    case 1: {
      const auto lower = lower_ - unit_->alignment * random.between(0, 3);
      const auto upper = upper_ + unit_->alignment * random.between(0, 3);
      CROSSLANE_MPI(MPI_Type_create_resized(type_, lower, upper - lower, &type));
      text_ = fmt::format("resized({}, {}, {})", text_, lower, upper - lower);
      replace(type, {0});
      lower_ = lower;
      upper_ = upper;
      return;
    }
    case 2: {
      const int count = random.between(1, most);
      CROSSLANE_MPI(MPI_Type_contiguous(count, type_, &type));
      text_ = fmt::format("contiguous({}, {})", count, text_);
      vector_of(1, count, 0);
      break;
    }
    case 3:
    case 4: {
      const int length = random.between(1, std::min(3, most)), count = random.between(1, std::max(1, most / length));
      const bool backwards =
          random.chance(30);  // with a gap: Open MPI 4.1 takes a vector of stride -1 for a forward one
      const int stride = backwards ? -random.between(length + 1, length + 4) : random.between(length, length + 3);
      CROSSLANE_MPI(MPI_Type_vector(count, length, stride, type_, &type));
      text_ = fmt::format("vector({}, {}, {}, {})", count, length, stride, text_);
      vector_of(count, length, stride * old_extent);
      break;
    }
    case 5: {
      const int length = random.between(1, std::min(3, most)), count = random.between(1, std::max(1, most / length));
      const bool backwards = random.chance(30);
      const auto distance = length * old_extent + unit_->alignment * random.between(backwards ? 1 : 0, 5);
      const auto stride = backwards ? -distance : distance;
      CROSSLANE_MPI(MPI_Type_create_hvector(count, length, stride, type_, &type));
      text_ = fmt::format("hvector({}, {}, {}, {})", count, length, stride, text_);
      vector_of(count, length, stride);
      break;
    }
    case 6: {
      blocks(false);
      CROSSLANE_MPI(MPI_Type_indexed(block_count(), lengths.data(), starts.data(), type_, &type));
      text_ = fmt::format("indexed({}, {})", block_count(), text_);
      break;
    }
    case 7: {
      blocks(false);
      CROSSLANE_MPI(MPI_Type_create_hindexed(block_count(), lengths.data(), in_bytes().data(), type_, &type));
      text_ = fmt::format("hindexed({}, {})", block_count(), text_);
      break;
    }
    case 8: {
      blocks(true);
      CROSSLANE_MPI(
          random.chance(50)
              ? MPI_Type_create_indexed_block(block_count(), lengths.front(), starts.data(), type_, &type)
              : MPI_Type_create_hindexed_block(block_count(), lengths.front(), in_bytes().data(), type_, &type));
      text_ = fmt::format("indexed_block({}, {}, {})", block_count(), lengths.front(), text_);
      break;
    }
    case 9: {
      blocks(false);
      const std::vector<MPI_Datatype> types(starts.size(), type_);
      CROSSLANE_MPI(MPI_Type_create_struct(block_count(), lengths.data(), in_bytes().data(), types.data(), &type));
      text_ = fmt::format("struct({}, {})", block_count(), text_);
      break;
    }
    default: {
      if (lower_ == 0) subarray(random);
      return;
    }
  }
  replace(type, at);
}

// Up to three dimensions, at most 2 x 2 x 2 units of the old type in at most 4 x 4 x 4.
void Layout::subarray(Random& random) {
  const auto dimensions = random.between<std::size_t>(1, 3);
  std::vector<int> sizes(dimensions), parts(dimensions), starts(dimensions);
  for (std::size_t i = 0; i < dimensions; ++i) {
    sizes[i] = random.between(1, 4);
    parts[i] = random.between(1, std::min(2, sizes[i]));
    starts[i] = random.between(0, sizes[i] - parts[i]);
  }
  const bool c_order = random.chance(50);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_create_subarray(static_cast<int>(dimensions), sizes.data(), parts.data(), starts.data(),
                                         c_order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, type_, &type));
  text_ = fmt::format("subarray({}, {})", dimensions, text_);
  // From the slowest dimension to the fastest.
  std::vector<std::ptrdiff_t> at{0};
  for (std::size_t i = 0; i < dimensions; ++i) {
    const auto dimension = c_order ? i : dimensions - 1 - i;
    std::vector<std::ptrdiff_t> next;
    for (const auto outer : at)
      for (int inner = 0; inner < parts[dimension]; ++inner)
        next.push_back(outer * sizes[dimension] + starts[dimension] + inner);
    at = std::move(next);
  }
  const auto old_extent = extent();
  for (auto& index : at) index *= old_extent;
  const auto whole =
      std::accumulate(sizes.begin(), sizes.end(), old_extent, [](std::ptrdiff_t a, int b) { return a * b; });
  replace(type, at);
  lower_ = 0;
  upper_ = whole;
}

void Layout::check_against_mpi() const {
  MPI_Aint lower = 0, extent_given = 0;
  int size = 0;
  CROSSLANE_MPI(MPI_Type_get_extent(type_, &lower, &extent_given));
  CROSSLANE_MPI(MPI_Type_size(type_, &size));
  CROSSLANE_CHECK(
      lower == lower_ && extent_given == extent() && static_cast<std::size_t>(size) == units_.size() * unit_->size,
      "{}: the MPI says lower {}, extent {}, size {}; the model {}, {}, {}", text_, lower, extent_given, size, lower_,
      extent(), units_.size() * unit_->size);
}

std::vector<Piece> Layout::pieces() const {
  std::vector<Piece> result;
  for (const auto displacement : units_) {
    for (const auto& piece : unit_->pieces) {
      const auto offset = displacement + piece.offset;
      if (!result.empty() && result.back().offset + static_cast<std::ptrdiff_t>(result.back().bytes) == offset)
        result.back().bytes += piece.bytes;
      else
        result.push_back({offset, piece.bytes});
    }
  }
  return result;
}

}  // namespace crosslane::tests
