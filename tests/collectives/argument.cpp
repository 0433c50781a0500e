// See argument.h.
#include "collectives/argument.h"

#include "support/check.h"

#include <algorithm>
#include <numeric>

namespace crosslane::tests {
namespace {

constexpr MPI_Aint alignment = 16;
constexpr int most_elements_of_type = 48;

MPI_Aint round_down(MPI_Aint value) { return (value - (value < 0 ? alignment - 1 : 0)) / alignment * alignment; }

// A type of which `count` blocks of `elements` base elements fit without overlap.
Type fitting(Random& random, const Base& base, int elements, int granule, std::int64_t count = 1) {
  if (granule == Argument::base_type) return base_type_of(base);
  for (;;) {
    const int size = granule > 0 ? granule : random_divisor(random, std::max(elements, 1), most_elements_of_type);
    Type type = random_type(random, base, size);
    if (type.most >= elements * count / type.elements()) return type;
  }
}

}  // namespace

void Argument::allocate(Draw draw, MPI_Aint low, MPI_Aint high, bool aligned) {
  auto& random = draw.random;
  const MPI_Aint start = round_down(std::min<MPI_Aint>(low, 0) - static_cast<MPI_Aint>(random.below(40)));
  const auto wanted = static_cast<std::size_t>(std::max<MPI_Aint>(high, 0) - start) + random.below(40);
  const auto bytes =
      std::max<std::size_t>(wanted, 1);  // no bytes would have their host copy at null, unlike the memory
  const std::size_t offset = aligned ? 16 * random.below(4) : random.below(48);
  kind_ = Kind::memory;
  memory_.emplace(draw.memory(), bytes, offset);
  origin_ = -start;
  reference_ = pattern(random.next(), bytes);
  ignored_.assign(bytes, 0);
  memory_->write(reference_);
}

Argument Argument::absent(Draw draw) {
  Argument argument;
  if (draw.random.chance(50)) argument.allocate(draw, 0, 64, false);
  return argument;
}

Argument Argument::in_place() {
  Argument argument;
  argument.kind_ = Kind::in_place;
  return argument;
}

Argument Argument::single(Draw draw, const Base& base, int elements, int blocks, int granule) {
  Argument argument;
  argument.owned_.push_back(fitting(draw.random, base, elements, granule, blocks));
  const Type& type = argument.owned_.back();
  argument.count = elements / type.elements();
  if (elements == 0) argument.count = 0;
  argument.type = type.handle;
  // Nothing is touched: null is as good a buffer as any.
  if (elements == 0 && draw.random.chance(50)) return argument;
  const std::int64_t count = std::int64_t{argument.count} * blocks;
  argument.allocate(draw, type.begin(count), type.end(count), false);
  return argument;
}

// Lays the blocks out one after the other in random order, with random gaps.
void Argument::place(Draw draw, const std::vector<const Type*>& used, const std::vector<int>& filled, bool in_bytes) {
  auto& random = draw.random;
  counts = filled;
  displacements.assign(filled.size(), 0);
  std::vector<std::size_t> order(filled.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (random.chance(70)) random.shuffle(order);
  MPI_Aint cursor = -static_cast<MPI_Aint>(random.below(200)), low = 0, high = 0;
  for (const auto i : order) {
    const Type& element = *used[i];
    const MPI_Aint step = in_bytes ? 1 : std::max<MPI_Aint>(element.extent, 1);
    const MPI_Aint wanted =
        cursor - element.begin(filled[i]) + (random.chance(40) ? static_cast<MPI_Aint>(random.below(64)) : 0);
    const MPI_Aint units = wanted >= 0 ? (wanted + step - 1) / step : -(-wanted / step);
    displacements[i] = static_cast<int>(units);
    if (filled[i] == 0) {
      continue;
    }
    low = std::min(low, units * step + element.begin(filled[i]));
    cursor = units * step + element.end(filled[i]);
    high = std::max(high, cursor);
  }
  // Open MPI refuses arrays at null, even of no elements.
  counts.reserve(1);
  displacements.reserve(1);
  types.reserve(1);
  wide_counts.reserve(1);
  wide_displacements.reserve(1);
  wide_counts.assign(counts.begin(), counts.end());
  wide_displacements.assign(displacements.begin(), displacements.end());
  if (low == high && random.chance(50)) return;
  allocate(draw, low, high, false);
}

Argument Argument::blocks(Draw draw, const Base& base, const std::vector<int>& elements, int granule) {
  Argument argument;
  const int most = elements.empty() ? 0 : *std::max_element(elements.begin(), elements.end());
  argument.owned_.push_back(fitting(draw.random, base, most, granule));
  const Type& type = argument.owned_.back();
  argument.type = type.handle;
  std::vector<int> filled;
  for (const int wanted : elements) filled.push_back(wanted / type.elements());
  argument.place(draw, std::vector<const Type*>(elements.size(), &type), filled, false);
  return argument;
}

Argument Argument::typed_blocks(Draw draw, const Base& base, const std::vector<int>& elements, int granule) {
  Argument argument;
  argument.owned_.reserve(elements.size());
  std::vector<const Type*> used;
  std::vector<int> filled;
  for (const int wanted : elements) {
    argument.owned_.push_back(fitting(draw.random, base, wanted, granule));
    used.push_back(&argument.owned_.back());
    argument.types.push_back(used.back()->handle);
    filled.push_back(wanted / used.back()->elements());
  }
  argument.place(draw, used, filled, true);
  return argument;
}

Argument Argument::operand(Draw draw, const Reduction& reduction, int count) {
  Argument argument;
  argument.reduction_ = &reduction;
  argument.count = argument.operands_ = count;
  argument.type = reduction.type.handle;
  if (count == 0 && draw.random.chance(50)) return argument;
  argument.allocate(draw, reduction.type.begin(count), reduction.type.end(count), true);
  argument.refill(draw.random);
  return argument;
}

void* Argument::address() const {
  if (kind_ == Kind::null) return nullptr;
  if (kind_ == Kind::in_place) return MPI_IN_PLACE;
  return memory_->as<std::byte>() + origin_;
}

void* Argument::reference_address() {
  if (kind_ != Kind::memory) return address();
  return reference_.data() + origin_;
}

void Argument::undefined(const Reduction& reduction, int from, int to) {
  if (kind_ != Kind::memory) return;
  for (int i = from; i < to; ++i)
    for (const auto offset : reduction.type.offsets)
      std::fill_n(ignored_.begin() + origin_ + i * reduction.type.extent + offset, reduction.base->extent,
                  std::uint8_t{1});
}

void Argument::ignore_padding(const Reduction& reduction) {
  if (kind_ != Kind::memory) return;
  for (int i = 0; i < operands_; ++i) {
    for (const auto offset : reduction.type.offsets) {
      const auto at = origin_ + i * reduction.type.extent + offset;
      for (std::size_t j = 0; j < reduction.base->padding.size(); ++j)
        if (reduction.base->padding[j] != 0) ignored_[static_cast<std::size_t>(at) + j] = 1;
    }
  }
}

void Argument::refill(Random& random) {
  if (kind_ != Kind::memory) return;
  reference_ = pattern(random.next(), reference_.size());
  if (reduction_ != nullptr) {
    for (int i = 0; i < operands_; ++i)
      for (const auto offset : reduction_->type.offsets)
        reduction_->fill(random, reference_.data() + origin_ + i * reduction_->type.extent + offset);
  }
  memory_->write(reference_);
}

void Argument::ignore_elements_behind(int packed_bytes) {
  int element = 0;
  CROSSLANE_MPI(MPI_Type_size(type, &element));
  if (kind_ != Kind::memory || packed_bytes == count * element) return;
  const auto packed = [&](const std::byte* from) {
    int room = 0, position = 0;
    CROSSLANE_MPI(MPI_Pack_size(count, type, MPI_COMM_SELF, &room));
    std::vector<std::byte> to(static_cast<std::size_t>(room));
    CROSSLANE_MPI(MPI_Pack(from, count, type, to.data(), room, &position, MPI_COMM_SELF));
    to.resize(static_cast<std::size_t>(position));
    return to;
  };
  const auto got = memory_->read();
  auto expected = packed(reference_.data() + origin_);
  const auto tail = packed(got.data() + origin_);
  std::copy(tail.begin() + packed_bytes, tail.end(), expected.begin() + packed_bytes);
  int position = 0;
  CROSSLANE_MPI(MPI_Unpack(expected.data(), static_cast<int>(expected.size()), &position, reference_.data() + origin_,
                           count, type, MPI_COMM_SELF));
}

void Argument::check(const std::string& what) const {
  if (kind_ != Kind::memory) return;
  const auto got = memory_->read();
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == reference_[i] || ignored_[i] != 0) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  report_failure(fmt::format(
      "{} ({}): {} of {} bytes differ from plain MPI's, first at {} from the buffer's address: {:02x}, expected {:02x}",
      what, text(), wrong, got.size(), static_cast<std::ptrdiff_t>(first) - origin_,
      std::to_integer<unsigned>(got[first]), std::to_integer<unsigned>(reference_[first])));
}

void Argument::release_types() {
  for (auto& each : owned_) each.release();
}

std::string Argument::text() const {
  if (kind_ == Kind::null) return "null";
  if (kind_ == Kind::in_place) return "MPI_IN_PLACE";
  std::string types_text;
  for (const auto& each : owned_) types_text += (types_text.empty() ? "" : ", ") + each.text;
  if (reduction_ != nullptr) types_text = reduction_->text;
  std::string counts_text = counts.empty() ? fmt::format("{}", count) : "";
  for (const auto each : counts) counts_text += fmt::format("{}{}", counts_text.empty() ? "" : " ", each);
  return fmt::format("{} memory, {} x {}", name(memory_->kind()), counts_text, types_text);
}

}  // namespace crosslane::tests
