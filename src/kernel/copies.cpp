// See copies.h.
#include "kernel/copies.h"

#include "gpu/context.h"

#include <algorithm>
#include <array>
#include <bit>

namespace crosslane::kernel {
namespace {

constexpr unsigned threads = 256;  // as the kernels' launch bounds
constexpr unsigned warp = 32;
// A multiprocessor holds four blocks, which is what their registers leave room for. Many times that, so that few of them wait
// for the last ones: of a sub-matrix of 128 MiB on an H200, 8 reach 0.91 of a contiguous copy, 16 0.94 and 32 0.955.
constexpr unsigned blocks_a_processor = 32;
// Of a push: each block gets so many where all have room, and a block that is alone is not asked too often.
constexpr std::uint64_t rounds_of_tiles = 2, least_tile = std::uint64_t{16} << 10, most_tile = std::uint64_t{256} << 10;
// Fewer words along an edge than this leave most of a tile's threads idle.
constexpr std::uint64_t least_edge = 8;
// Words of a side that are at least so far apart share no sector of memory.
constexpr std::uint64_t sector = 32;

std::uint64_t distance(std::int64_t stride) {
  return stride < 0 ? 0 - static_cast<std::uint64_t>(stride) : static_cast<std::uint64_t>(stride);
}

std::uint64_t address_of(const Laid& side) {
  return reinterpret_cast<std::uintptr_t>(side.base) + static_cast<std::uint64_t>(side.shape.offset);
}

// The power of two that divides and aligns a side, in the lowest bit that is set.
std::uint64_t bits_of(const Laid& side) {
  std::uint64_t bits = address_of(side);
  if (side.shape.dimensions != 0) bits |= side.shape.width;
  for (std::size_t d = 0; d < side.shape.dimensions; ++d) {
    bits |= d == 0 && side.table.displacements != nullptr ? std::uint64_t{1} << side.table.shift
                                                          : static_cast<std::uint64_t>(side.shape.dimension[d].stride);
  }
  return bits;
}

WordsSide words_side(const Laid& side, std::uint32_t word) {
  WordsSide result{};
  result.address = address_of(side);
  result.table = side.table.displacements;
  result.shift = side.table.shift;
  result.wide = side.table.wide;
  result.dimensions = static_cast<std::uint32_t>(side.shape.dimensions);
  if (result.dimensions != 0) result.words_per_run = Divider::by(side.shape.width / word);
  for (std::size_t d = 0; d < side.shape.dimensions; ++d) {
    result.count[d] = Divider::by(side.shape.dimension[d].count);
    result.stride[d] = side.shape.dimension[d].stride;
  }
  return result;
}

// Both sides as one nest of the same loops, as far as that can be.
struct Common {
  struct Loop {
    std::uint64_t count;
    std::int64_t to, from;
  };
  std::uint64_t width = 0;  // bytes of the innermost run, contiguous on both sides
  std::size_t loops = 0;    // innermost first
  std::array<Loop, TilesParameters::limit> loop{};
};

// The packed bytes before each loop of a side begins again: the width, then with each dimension.
struct Steps {
  std::size_t used = 0;
  std::array<std::uint64_t, Strided::limit + 1> bytes{};

  // False where they leave 64 bits.
  bool fill(const Strided& shape) {
    bytes[used++] = shape.width;
    for (std::size_t d = 0; d < shape.dimensions; ++d, ++used)
      if (__builtin_mul_overflow(bytes[used - 1], shape.dimension[d].count, &bytes[used])) return false;
    return true;
  }
  [[nodiscard]] std::uint64_t all() const { return bytes[used - 1]; }
};

// From one packed byte to the one `step` further, which begins a round of one of the side's loops or lies in its run.
std::int64_t stride_at(const Strided& shape, const Steps& steps, std::uint64_t step) {
  for (std::size_t d = shape.dimensions; d-- > 0;)
    if (step >= steps.bytes[d]) return static_cast<std::int64_t>(step / steps.bytes[d]) * shape.dimension[d].stride;
  return static_cast<std::int64_t>(step);
}

std::optional<Common> common_nest(const Laid& to, const Laid& from) {
  if (to.table.displacements != nullptr || from.table.displacements != nullptr) return std::nullopt;
  if (to.shape.dimensions == 0 && from.shape.dimensions == 0) return std::nullopt;
  Strided to_shape = to.shape, from_shape = from.shape;
  Steps to_steps, from_steps;
  if (to_shape.dimensions != 0 && !to_steps.fill(to_shape)) return std::nullopt;
  if (from_shape.dimensions != 0 && !from_steps.fill(from_shape)) return std::nullopt;
  // A packed side is one run as long as the other one.
  const auto as_long = [](Strided& shape, Steps& steps, const Steps& other) {
    shape.width = other.all();
    return steps.fill(shape);
  };
  if (to_shape.dimensions == 0 && !as_long(to_shape, to_steps, from_steps)) return std::nullopt;
  if (from_shape.dimensions == 0 && !as_long(from_shape, from_steps, to_steps)) return std::nullopt;
  if (to_steps.all() != from_steps.all()) return std::nullopt;

  std::array<std::uint64_t, 2 * (Strided::limit + 1)> cuts{};
  const auto merged =
      std::set_union(to_steps.bytes.begin(), to_steps.bytes.begin() + to_steps.used, from_steps.bytes.begin(),
                     from_steps.bytes.begin() + from_steps.used, cuts.begin());
  const auto last = std::unique(cuts.begin(), merged);  // loops of one round
  Common common;
  common.width = cuts[0];
  for (auto cut = cuts.begin(); cut + 1 < last; ++cut) {
    if (cut[1] % cut[0] != 0 || common.loops == common.loop.size()) return std::nullopt;
    common.loop[common.loops++] = {cut[1] / cut[0], stride_at(to_shape, to_steps, cut[0]),
                                   stride_at(from_shape, from_steps, cut[0])};
  }
  return common;
}

}  // namespace

std::uint32_t word_for(const Laid& to, const Laid& from, std::size_t begin, std::size_t end) noexcept {
  return std::uint32_t{1} << std::countr_zero(16 | bits_of(to) | bits_of(from) | begin | end);
}

std::optional<Part> part_of(const Laid& to, const Laid& from, std::size_t bytes) noexcept {
  Part part{};
  part.to = address_of(to);
  part.from = address_of(from);
  part.items = bytes;
  part.word = 1;
  const bool nested = to.shape.dimensions != 0 || from.shape.dimensions != 0;
  if (!nested && to.table.displacements == nullptr && from.table.displacements == nullptr) return part;
  const auto common = common_nest(to, from);
  if (!common || common->loops > TogetherParameters::loops || tiling(to, from, 0, bytes)) return std::nullopt;
  const std::uint32_t word = word_for(to, from, 0, bytes);
  part.word = static_cast<std::uint8_t>(word);
  part.items = bytes / word;
  if (part.items >= Divider::limit) return std::nullopt;
  // A run of all is a loop of one round.
  part.loops_used = static_cast<std::uint8_t>(std::max<std::size_t>(common->loops, 1));
  const auto divide_by = [&](std::size_t which, std::uint64_t divisor) {
    const auto divider = Divider::by(std::min(divisor, Divider::limit - 1));
    part.divisor[which] = static_cast<std::uint32_t>(divider.divisor);
    part.multiplier[which] = divider.multiplier;
    part.shift[which] = static_cast<std::uint8_t>(divider.shift);
  };
  divide_by(0, common->width / word);
  for (std::size_t d = 0; d < common->loops; ++d) {
    part.to_stride[d] = common->loop[d].to;
    part.from_stride[d] = common->loop[d].from;
    if (d + 1 < common->loops) divide_by(d + 1, common->loop[d].count);
  }
  return part;
}

std::optional<Tiling> tiling(const Laid& to, const Laid& from, std::size_t begin, std::size_t end) noexcept {
  const auto common = common_nest(to, from);
  if (!common || common->loops < 2) return std::nullopt;
  if (!std::has_single_bit(common->width) || common->width > 16) return std::nullopt;
  const auto& loop = common->loop;
  std::size_t x = 0, y = 0;
  for (std::size_t d = 1; d < common->loops; ++d) {
    if (distance(loop[d].from) < distance(loop[x].from)) x = d;
    if (distance(loop[d].to) < distance(loop[y].to)) y = d;
  }
  if (x == y || distance(loop[x].to) < sector || distance(loop[y].from) < sector) return std::nullopt;
  std::uint64_t bits = address_of(to) | address_of(from);
  for (std::size_t d = 0; d < common->loops; ++d)
    bits |= static_cast<std::uint64_t>(loop[d].to) | static_cast<std::uint64_t>(loop[d].from);
  if (bits % common->width != 0) return std::nullopt;

  // Whole rounds of the outermost loop.
  const std::size_t outermost = common->loops - 1;
  std::uint64_t round = common->width;
  for (std::size_t d = 0; d < outermost; ++d) round *= loop[d].count;
  const std::uint64_t first = (begin + round - 1) / round, last = end / round;
  if (first >= last) return std::nullopt;
  Tiling tiling{};
  tiling.begin = first * round;
  tiling.end = last * round;
  TilesParameters& parameters = tiling.parameters;
  parameters.to = address_of(to) + first * static_cast<std::uint64_t>(loop[outermost].to);
  parameters.from = address_of(from) + first * static_cast<std::uint64_t>(loop[outermost].from);
  parameters.word = static_cast<std::uint32_t>(common->width);
  const std::uint64_t edge = TilesCopy::edge(common->width);
  std::uint64_t planes = 1;
  for (std::size_t d = 0; d < common->loops; ++d) {
    const std::uint64_t count = d == outermost ? last - first : loop[d].count;
    const TilesParameters::Dimension stride{loop[d].to, loop[d].from};
    if (d == x || d == y) {
      if (count < least_edge) return std::nullopt;
      (d == x ? parameters.count_x : parameters.count_y) = count;
      (d == x ? parameters.x : parameters.y) = stride;
      (d == x ? parameters.tiles_x : parameters.tiles_y) = Divider::by((count + edge - 1) / edge);
    } else {
      parameters.count[parameters.dimensions] = Divider::by(count);
      parameters.stride[parameters.dimensions++] = stride;
      if (__builtin_mul_overflow(planes, count, &planes)) return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(planes, parameters.tiles_x.divisor, &parameters.tiles) ||
      __builtin_mul_overflow(parameters.tiles, parameters.tiles_y.divisor, &parameters.tiles) ||
      parameters.tiles >= Divider::limit) {
    return std::nullopt;
  }
  return tiling;
}

Copies::Copies(const gpu::Driver& driver, unsigned blocks)
    : module_(load(driver, Family::copy)),
      contiguous_(loaded(module_, "crosslane_copy_contiguous")),
      words_(loaded(module_, "crosslane_copy_words")),
      tiles_(loaded(module_, "crosslane_copy_tiles")),
      units_(loaded(module_, "crosslane_copy_units")),
      together_(loaded(module_, "crosslane_copy_together")),
      push_(loaded(module_, "crosslane_copy_push")),
      swap_(loaded(module_, "crosslane_copy_swap")),
      most_blocks_(blocks) {
  if (most_blocks_ == 0) {
    most_blocks_ =
        blocks_a_processor * static_cast<unsigned>(gpu::device_attribute(
                                 driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu::current_device(driver)));
  }
}

gpu::Grid Copies::grid(std::uint64_t items, std::uint64_t items_a_block, unsigned most) const noexcept {
  return {static_cast<unsigned>(
      std::clamp<std::uint64_t>((items + items_a_block - 1) / items_a_block, 1, std::min(most, most_blocks_)))};
}

void Copies::contiguous(gpu::StreamView stream, void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  contiguous_.launch(stream, grid(bytes, Copy::tile), {threads}, 0, CopyParameters{to, from, bytes});
}

void Copies::together(gpu::StreamView stream, std::span<const Part> parts, std::span<const Ending> endings,
                      std::uint64_t* counter) const {
  while (!parts.empty() || !endings.empty()) {
    TogetherParameters parameters{};
    const auto some = parts.first(std::min<std::size_t>(parts.size(), TogetherParameters::limit));
    parts = parts.subspan(some.size());
    std::uint64_t tiles = 0;
    for (const Part& part : some) {
      parameters.part[parameters.parts++] = part;
      tiles += TogetherCopy::tiles(part, threads);
    }
    if (parts.empty()) {
      const auto told = endings.first(std::min<std::size_t>(endings.size(), TogetherParameters::limit));
      endings = endings.subspan(told.size());
      for (const Ending& ending : told) parameters.ending[parameters.endings++] = ending;
      parameters.counter = counter;
    }
    together_.launch(stream, grid(tiles, 1), {threads}, 0, parameters);
  }
}

void Copies::push(gpu::StreamView stream, void* to, const void* from, std::size_t bytes, const Revocation& revocation,
                  const Ending& ending, PushControl* control, unsigned most_blocks) const {
  PushParameters parameters{};
  parameters.to = reinterpret_cast<std::uintptr_t>(to);
  parameters.from = reinterpret_cast<std::uintptr_t>(from);
  parameters.bytes = bytes;
  const std::uint64_t share = bytes / most_blocks / rounds_of_tiles;
  parameters.tile = std::clamp((share + least_tile - 1) & ~(least_tile - 1), least_tile, most_tile);
  parameters.control = control;
  parameters.revocation = revocation;
  parameters.ending = ending;
  push_.launch(stream, grid(bytes, parameters.tile, most_blocks), {threads}, PushCopy::shared_bytes, parameters);
}

void Copies::swap(gpu::StreamView stream, SwapParameters parameters) const {
  const std::uint64_t bits = parameters.value | parameters.next | parameters.wanted | parameters.before;
  parameters.word = std::uint32_t{1} << std::countr_zero(8 | bits | parameters.bytes);
  swap_.launch(stream, {1}, {warp}, 0, parameters);
}

void Copies::words(gpu::StreamView stream, const Laid& to, const Laid& from, std::size_t begin, std::size_t end) const {
  if (begin >= end) return;
  WordsParameters parameters{};
  parameters.word = word_for(to, from, begin, end);
  parameters.to = words_side(to, parameters.word);
  parameters.from = words_side(from, parameters.word);
  parameters.begin = begin / parameters.word;
  parameters.end = end / parameters.word;
  words_.launch(stream, grid(parameters.end - parameters.begin, threads * WordsCopy::batch), {threads}, 0, parameters);
}

void Copies::laid(gpu::StreamView stream, const Laid& to, const Laid& from, std::size_t begin, std::size_t end) const {
  const auto tiled = tiling(to, from, begin, end);
  if (!tiled) return words(stream, to, from, begin, end);
  words(stream, to, from, begin, tiled->begin);
  tiles_.launch(stream, grid(tiled->parameters.tiles, 1), {threads}, TilesCopy::shared_bytes(tiled->parameters.word),
                tiled->parameters);
  words(stream, to, from, tiled->end, end);
}

void Copies::along(gpu::StreamView stream, const UnitList& list, UnitSide to, UnitSide from, std::size_t begin,
                   std::size_t end, std::uint64_t first, std::uint64_t last) const {
  if (begin >= end || first >= last) return;
  UnitsParameters parameters{};
  parameters.units = list.units;
  // A packed side's address is the stream's byte 0; the offset belongs to what is laid out.
  const auto address = [&](UnitSide side) {
    return reinterpret_cast<std::uintptr_t>(side.address) +
           (side.packed ? 0 - static_cast<std::uint64_t>(begin) : static_cast<std::uint64_t>(list.loops.offset));
  };
  parameters.to = address(to);
  parameters.from = address(from);
  parameters.to_packed = to.packed;
  parameters.from_packed = from.packed;
  parameters.wide = list.wide;
  parameters.shift = list.shift;
  // As many threads a unit as its words of 16 bytes keep busy.
  const std::uint64_t words = std::max<std::uint64_t>(list.bytes / list.count / 16, 1);
  parameters.lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::bit_floor(words), 32));
  parameters.dimensions = static_cast<std::uint32_t>(list.loops.dimensions);
  parameters.units_per_list = Divider::by(list.count);
  for (std::size_t d = 0; d < list.loops.dimensions; ++d) {
    parameters.count[d] = Divider::by(list.loops.dimension[d].count);
    parameters.stride[d] = list.loops.dimension[d].stride;
  }
  parameters.list_bytes = list.bytes;
  parameters.first = first;
  parameters.last = last;
  parameters.begin = begin;
  parameters.end = end;
  units_.launch(stream, grid(last - first, threads / parameters.lanes), {threads}, 0, parameters);
}

}  // namespace crosslane::kernel
