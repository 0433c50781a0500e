// See mover.h.
//
//   both sides contiguous                         cuMemcpyAsync
//   several such, or nests of few loops, short    one kernel that writes words behind them, too (copy_all())
//   one to a peer that reads others meanwhile     a small kernel that may be called off (push())
//   rows to or from host memory, in whole sectors cuMemcpy2DAsync
//   one side runs across the other                tiles
//   otherwise, nests of loops                     words
//   an irregular side, runs of (nearly) one size  words, with a table of the runs' displacements
//   an irregular side, runs of all sizes          units; only to or from the packed stream, or between two equal layouts
//   no room for a list                            windows of it, made anew
//   no kernels that the GPU takes, or host memory that is not mapped  a copy a run, or one of rows
#include "lane/mover.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "gpu/copy_list.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace crosslane::lane {
namespace {

// Rows of host memory that the copy engine moves at full speed: whole sectors, or long ones.
constexpr std::size_t row_grain = 64, long_row = 4096;
// Runs of host memory that are worth a copy each.
constexpr std::size_t long_run = std::size_t{64} << 10;
// Between two H100 the copy engine takes 3.4 us for each copy of 256 KiB, and 5.5 for one of 1 MiB: 77 and 190 GB/s of 360. Windows of 64 of 2 MiB both
// ways reached 161 GB/s by it, and 200 by kernels; of 4 MiB as much either way.
constexpr std::size_t short_copy = std::size_t{2} << 20;
// Longer nests of loops have kernels of their own, which use more of the GPU than one for many does.
constexpr std::size_t short_nest = std::size_t{1} << 20;
// That push() has. Between two H200 windows of 16 MiB both ways reach 332 GB/s with 64 blocks, 323 with 32, and 320 with 16.
constexpr unsigned push_blocks = 64;
// A table is made where runs are on average at most so many times as long as what divides all of them: its entries then
// cost no more than units do, and words of any length of run are coalesced.
constexpr std::size_t table_ratio = 4;

struct Run {
  std::int64_t offset;
  std::size_t length;
};

std::byte* at(std::byte* base, std::int64_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

layout::NodePointer node_of(const kernel::Strided& shape) {
  auto node = layout::block(shape.offset, shape.width);
  for (std::size_t d = 0; d < shape.dimensions; ++d)
    node = layout::repeat(std::move(node), shape.dimension[d].count, shape.dimension[d].stride);
  return node;
}

// Loops around what a table lists.
kernel::Laid with_table_inside(kernel::Laid laid, const kernel::Table& table, std::uint64_t entries, std::size_t run) {
  auto& shape = laid.shape;
  std::copy_backward(shape.dimension, shape.dimension + shape.dimensions, shape.dimension + shape.dimensions + 1);
  shape.dimension[0] = {entries, 0};
  ++shape.dimensions;
  shape.width = run;
  laid.table = table;
  return laid;
}

std::uint64_t fingerprint_of(Irregular& known) {
  if (!known.fingerprint) known.fingerprint = layout::fingerprint(*known.node);
  return *known.fingerprint;
}

}  // namespace

/// A side as kernels take it. Without `irregular` it is `laid` alone; with it, laid.shape has the loops around that node
/// and counts from the node's lowest byte.
struct Mover::Resolved {
  kernel::Laid laid;
  layout::NodePointer irregular;

  [[nodiscard]] bool contiguous() const { return !irregular && laid.shape.dimensions == 0; }
  [[nodiscard]] std::byte* first(std::size_t begin) const {
    return at(static_cast<std::byte*>(laid.base), laid.shape.offset + static_cast<std::int64_t>(begin));
  }
  [[nodiscard]] kernel::Laid with_table(const List& list) const {
    return with_table_inside(laid, list.as_table(), irregular->size / list.run_bytes(), list.run_bytes());
  }
  /// The same runs in the same places, seen from the base.
  [[nodiscard]] bool mirrors(const Resolved& other) const {
    if (!irregular || !other.irregular || laid.shape.offset != other.laid.shape.offset ||
        laid.shape.dimensions != other.laid.shape.dimensions || !layout::equal(*irregular, *other.irregular))
      return false;
    for (std::size_t d = 0; d < laid.shape.dimensions; ++d) {
      const auto& mine = laid.shape.dimension[d];
      const auto& theirs = other.laid.shape.dimension[d];
      // How often the outermost loop goes round does not matter: the range says it.
      if (mine.stride != theirs.stride || (d + 1 != laid.shape.dimensions && mine.count != theirs.count)) return false;
    }
    return true;
  }
};

std::size_t Mover::average_run(const Resolved& side) {
  if (side.contiguous()) return std::numeric_limits<std::size_t>::max();
  if (!side.irregular) return side.laid.shape.width;
  return side.irregular->size / std::max<std::uint64_t>(side.irregular->run_count, 1);
}

struct Mover::Site {
  Site(const gpu::Driver& driver, PinnedPool& pinned, unsigned blocks, std::size_t list_limit)
      : copies(driver, blocks), lists(driver, pinned, list_limit) {}
  kernel::Copies copies;
  std::mutex mutex;  // guards lists
  Lists lists;
};

Reach Side::reach(std::size_t bytes) const {
  std::int64_t low = 0, high = 0;
  switch (form_) {
    case Form::packed:
      high = static_cast<std::int64_t>(bytes);
      break;
    case Form::elements: {
      const auto span = layout_->span(count_);
      low = span.begin;
      high = span.end;
      break;
    }
    case Form::nest:
      low = shape_->offset;
      high = low + static_cast<std::int64_t>(shape_->width);
      for (std::size_t d = 0; d < shape_->dimensions; ++d) {
        const auto& loop = shape_->dimension[d];
        const auto last = static_cast<std::int64_t>(loop.count - 1) * loop.stride;
        (last < 0 ? low : high) += last;
      }
  }
  return {reinterpret_cast<std::uintptr_t>(at(address_, low)), reinterpret_cast<std::uintptr_t>(at(address_, high))};
}

Mover::Mover(DriverSource driver, PinnedPool& pinned, const base::Settings& settings)
    : driver_(std::move(driver)), pinned_(pinned), blocks_(settings.copy_blocks), list_limit_(settings.list_limit) {}

Mover::~Mover() = default;

std::shared_ptr<Mover::Site> Mover::load(CUcontext context) {
  const auto& driver = driver_();
  if (!kernel::available(driver)) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto found = sites_.find(context); found != sites_.end()) return found->second;
  try {
    return sites_.emplace(context, std::make_shared<Site>(driver, pinned_, blocks_, list_limit_)).first->second;
  } catch (const base::Error& error) {
    if (!base::is_shortage(error)) sites_.emplace(context, nullptr);  // the next time would fail alike
    throw;
  }
}

std::shared_ptr<Mover::Site> Mover::site(CUcontext context) {
  try {
    return load(context);
  } catch (const base::Error& error) {
    const bool passes = base::is_shortage(error);
    base::log(passes ? base::Topic::info : base::Topic::warning,
              "datatypes in GPU memory are copied run by run{}, which takes many times as long: {}",
              passes ? " this time" : "", error.what());
    return nullptr;
  }
}

// Another thread may have found since that the context ended, and forgotten it.
std::shared_ptr<Mover::Site> Mover::prepared_site(CUcontext context) {
  auto here = load(context);
  if (here == nullptr)
    throw base::Error(base::ErrorClass::other, "the kernels of a CUDA context are gone; was it destroyed or reset?");
  return here;
}

bool Mover::prepare(CUcontext context) {
  const gpu::ContextScope scope(driver_(), context);
  return load(context) != nullptr;
}

void Mover::forget(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  sites_.erase(context);
}

Mover::Resolved Mover::resolve(const Side& side, std::size_t begin) {
  Resolved result;
  if (side.form_ == Side::Form::packed) {
    result.laid = kernel::Laid::packed(side.address_, begin);
    return result;
  }
  result.laid.base = side.address_;
  if (side.form_ == Side::Form::nest) {
    result.laid.shape = *side.shape_;
    return result;
  }
  if (const auto shape = side.layout_->as_strided(side.count_)) {
    result.laid.shape = *shape;
    return result;
  }
  // The loops around what is irregular; one dimension is left for a table.
  constexpr std::size_t most = kernel::Strided::limit - 1;
  layout::NodePointer node = side.layout_->node();
  std::vector<kernel::Strided::Dimension> loops;  // outermost first
  if (side.count_ > 1) loops.push_back({static_cast<std::uint64_t>(side.count_), side.layout_->extent()});
  while (node->kind == layout::Node::Kind::loop && loops.size() < most) {
    loops.push_back({node->count, node->stride});
    node = node->child;
  }
  auto& shape = result.laid.shape;
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) shape.dimension[shape.dimensions++] = *loop;
  shape.offset = node->low;
  result.irregular = std::move(node);
  return result;
}

void Mover::copy(CUcontext context, gpu::StreamView stream, const Side& to, const Side& from, std::size_t begin,
                 std::size_t end, Memory memory) {
  if (begin >= end) return;
  const gpu::ContextScope scope(driver_(), context);
  const Resolved resolved_to = resolve(to, begin), resolved_from = resolve(from, begin);
  if (resolved_to.contiguous() && resolved_from.contiguous())
    return gpu::copy_async(resolved_to.first(begin), resolved_from.first(begin), end - begin, stream);
  // Few long runs are the copy engine's.
  if (memory == Memory::mapped && average_run(resolved_to) >= long_run && average_run(resolved_from) >= long_run)
    memory = Memory::host;
  const auto here = memory == Memory::host ? nullptr : site(context);
  if ((here == nullptr || memory == Memory::mapped) &&
      copy_rows(stream, to, from, resolved_to, resolved_from, begin, end, here == nullptr ? Memory::host : memory))
    return;
  if (here == nullptr) return copy_runs(stream, to, from, begin, end);
  if (!resolved_to.irregular && !resolved_from.irregular)
    return here->copies.laid(stream, resolved_to.laid, resolved_from.laid, begin, end);
  if (copy_listed(*here, stream, resolved_to, resolved_from, begin, end)) return;
  if (stream.capturing()) return copy_runs(stream, to, from, begin, end);
  copy_windows(*here, stream, to, from, resolved_to, resolved_from, begin, end);
}

// Whole rows as one copy of the engine, and the ends of the range run by run. False where the sides are not rows of the same
// length, or kernels do better.
bool Mover::copy_rows(gpu::StreamView stream, const Side& to, const Side& from, const Resolved& resolved_to,
                      const Resolved& resolved_from, std::size_t begin, std::size_t end, Memory memory) {
  const auto& to_shape = resolved_to.laid.shape;
  const auto& from_shape = resolved_from.laid.shape;
  if (resolved_to.irregular || resolved_from.irregular || to_shape.dimensions > 1 || from_shape.dimensions > 1)
    return false;
  const std::size_t width = to_shape.dimensions == 1 ? to_shape.width : from_shape.width;
  if (from_shape.dimensions == 1 && from_shape.width != width) return false;
  if (memory == Memory::mapped && width % row_grain != 0 && width < long_row) return false;
  const auto pitch = [&](const kernel::Strided& shape) {
    return shape.dimensions == 1 ? shape.dimension[0].stride : static_cast<std::int64_t>(width);
  };
  const std::int64_t to_pitch = pitch(to_shape), from_pitch = pitch(from_shape);
  if (std::min(to_pitch, from_pitch) < static_cast<std::int64_t>(width)) return false;
  const std::size_t first = (begin + width - 1) / width, last = end / width;
  if (last < first + 2) return false;
  const auto row = [&](const Resolved& side, std::int64_t distance) {
    return at(static_cast<std::byte*>(side.laid.base),
              side.laid.shape.offset + static_cast<std::int64_t>(first) * distance);
  };
  const auto part = [&](std::size_t low, std::size_t high) {
    if (low >= high) return;
    // A packed side's address is that of the range's first byte.
    const auto moved = [&](const Side& side) {
      Side there = side;
      if (side.form_ == Side::Form::packed) there.address_ = at(side.address_, static_cast<std::int64_t>(low - begin));
      return there;
    };
    copy_runs(stream, moved(to), moved(from), low, high);
  };
  part(begin, first * width);
  gpu::copy_2d_async(row(resolved_to, to_pitch), row(resolved_from, from_pitch),
                     {width, last - first, static_cast<std::size_t>(to_pitch), static_cast<std::size_t>(from_pitch)},
                     stream);
  part(last * width, end);
  return true;
}

void Mover::copy_runs(gpu::StreamView stream, const Side& to, const Side& from, std::size_t begin, std::size_t end) {
  // A side's runs in a part of the range that is small enough to keep them.
  const auto for_each = [&](const Side& side, std::size_t low, std::size_t high, auto&& f) {
    if (side.form_ == Side::Form::packed) {
      f(static_cast<std::int64_t>(low - begin), high - low);
    } else if (side.form_ == Side::Form::elements) {
      side.layout_->for_each_run(side.count_, low, high, f);
    } else {
      layout::Layout(node_of(*side.shape_), 0, 0).for_each_run(1, low, high, f);
    }
  };
  constexpr std::size_t part = std::size_t{1} << 18;
  std::vector<Run> sources;
  const std::size_t step = from.form_ == Side::Form::packed ? end - begin : part;
  for (std::size_t low = begin; low < end; low += std::min(step, end - low)) {
    const std::size_t high = low + std::min(step, end - low);
    sources.clear();
    for_each(from, low, high, [&](std::int64_t offset, std::size_t length) { sources.push_back({offset, length}); });
    auto source = sources.begin();
    for_each(to, low, high, [&](std::int64_t offset, std::size_t length) {
      while (length != 0) {
        const std::size_t both = std::min(length, source->length);
        gpu::copy_async(at(to.address_, offset), at(from.address_, source->offset), both, stream);
        offset += static_cast<std::int64_t>(both);
        length -= both;
        source->offset += static_cast<std::int64_t>(both);
        source->length -= both;
        if (source->length == 0) ++source;
      }
    });
  }
}

// Whether its list is a table. `single`: no other list takes part in the copy.
bool Mover::tabled(const Irregular& known, bool single) {
  const layout::Node& node = *known.node;
  return !single || node.size / std::max<std::uint64_t>(std::min(node.run_count, node.size), 1) <=
                        table_ratio * known.facts.divisor;
}

bool Mover::has_kernels(CUcontext context) {
  const gpu::ContextScope scope(driver_(), context);
  return site(context) != nullptr;
}

std::optional<kernel::Part> Mover::part_of(CUcontext context, const Side& to, const Side& from, std::size_t bytes,
                                           Memory memory) {
  const Resolved resolved_to = resolve(to, 0), resolved_from = resolve(from, 0);
  if (resolved_to.irregular || resolved_from.irregular) return std::nullopt;
  if (!resolved_to.contiguous() || !resolved_from.contiguous())
    if (memory != Memory::gpu || bytes > short_nest || !has_kernels(context)) return std::nullopt;
  return kernel::part_of(resolved_to.laid, resolved_from.laid, bytes);
}

void Mover::copy_all(CUcontext context, gpu::StreamView stream, std::span<const kernel::Part> parts,
                     std::span<const gpu::WordWrite> words, const gpu::Buffer& counter, Memory memory) {
  std::size_t contiguous = 0, bytes = 0;
  for (const kernel::Part& part : parts) {
    if (part.loops_used != 0) continue;
    ++contiguous;
    bytes += part.items;
  }
  // What is contiguous, alone or long.
  const bool by_engine = contiguous != 0 && (parts.size() == 1 || bytes > contiguous * short_copy);
  std::shared_ptr<Site> there;
  if (contiguous != parts.size()) {
    there = prepared_site(context);
  } else if (memory == Memory::gpu && !by_engine) {
    there = site(context);
  }
  std::vector<kernel::Part> rest;
  if (there == nullptr || by_engine) {
    gpu::CopyList copies;
    for (const kernel::Part& part : parts) {
      if (part.loops_used != 0) {
        rest.push_back(part);
      } else {
        copies.add(kernel::pointer_to<void>(part.to), kernel::pointer_to<const void>(part.from), part.items);
      }
    }
    copies.enqueue(stream);
    parts = rest;
  }
  std::vector<kernel::Ending> endings;
  const bool tells = !parts.empty() && !words.empty() && counter.address() != 0 &&
                     std::ranges::all_of(words, [](const auto& word) { return word.address != 0; });
  endings.reserve(words.size());
  if (tells)
    for (const auto& word : words) endings.push_back({kernel::pointer_to<std::uint64_t>(word.address), word.value});
  if (!parts.empty())
    there->copies.together(stream, parts, endings, kernel::pointer_to<std::uint64_t>(counter.address()));
  if (!tells) gpu::write_words(stream, words);
}

void Mover::push(CUcontext context, gpu::StreamView stream, std::byte* to, const std::byte* from, std::size_t bytes,
                 const kernel::Revocation& revocation, const gpu::WordWrite& word, const gpu::Buffer& control) {
  prepared_site(context)->copies.push(stream, to, from, bytes, revocation,
                                      {kernel::pointer_to<std::uint64_t>(word.address), word.value},
                                      reinterpret_cast<kernel::PushControl*>(control.data()), push_blocks);
}

void Mover::swap(CUcontext context, gpu::StreamView stream, const kernel::SwapParameters& parameters) {
  prepared_site(context)->copies.swap(stream, parameters);
}

std::optional<Listed> Mover::listed(CUcontext context, const layout::Layout& layout, std::int64_t count) {
  const Resolved resolved = resolve(Side::of(nullptr, layout, count), 0);
  if (!resolved.irregular || resolved.laid.shape.dimensions > 1) return std::nullopt;
  const gpu::ContextScope scope(driver_(), context);
  const auto here = site(context);
  if (here == nullptr) return std::nullopt;
  const std::lock_guard lock(here->mutex);
  Irregular& known = here->lists.find(resolved.irregular);
  const bool table = tabled(known, true);
  List* const list = (table ? known.table : known.units).get();
  if (list == nullptr) return std::nullopt;
  auto held = here->lists.hold(*list);
  if (held == nullptr) return std::nullopt;
  return Listed{.data = list->data(),
                .loops = resolved.laid.shape,
                .bytes = known.node->size,
                .entries = list->entries(),
                .runs = known.node->run_count,
                .run_bytes = table ? list->run_bytes() : 0,
                .fingerprint = fingerprint_of(known),
                .shift = list->shift(),
                .wide = list->wide(),
                .held = std::move(held)};
}

void Mover::follow(CUcontext context, gpu::StreamView stream, const Side& to, const void* from, const Listed& list,
                   std::size_t begin, std::size_t end, Memory memory) {
  if (begin >= end) return;
  const gpu::ContextScope scope(driver_(), context);
  const auto here = site(context);
  if (here == nullptr)
    throw base::Error(base::ErrorClass::unsupported, "no kernel here follows another rank's irregular datatype");
  Resolved there;
  there.laid.base = const_cast<void*>(from);
  there.laid.shape = list.loops;
  if (memory != Memory::host && follow_at_once(*here, stream, resolve(to, begin), there, list, begin, end)) return;
  // Given back however this ends: what is enqueued goes on with it.
  struct Lent {
    Site& site;
    const gpu::StreamView stream;
    Lists::Window window;
    ~Lent() {
      const std::lock_guard lock(site.mutex);
      site.lists.give_back(std::move(window), stream);
    }
  };
  const Lent lent{*here, stream, [&] {
                    const std::lock_guard lock(here->mutex);
                    return here->lists.lend_window();
                  }()};
  const std::size_t most = Lists::window_bytes;
  for (std::size_t low = begin; low < end; low += std::min(most, end - low)) {
    const std::size_t high = low + std::min(most, end - low);
    const Side packed = Side::packed(lent.window.data());
    follow_at_once(*here, stream, resolve(packed, low), there, list, low, high);
    Side part = to;
    if (to.form_ == Side::Form::packed) part.address_ = at(to.address_, static_cast<std::int64_t>(low - begin));
    copy(context, stream, part, packed, low, high, memory);
  }
}

// False, with nothing enqueued, where no kernel can take both sides.
bool Mover::follow_at_once(Site& site, gpu::StreamView stream, const Resolved& to, Resolved from, const Listed& list,
                           std::size_t begin, std::size_t end) {
  if (to.irregular) {
    const bool same = [&] {
      const std::lock_guard lock(site.mutex);
      return fingerprint_of(site.lists.find(to.irregular)) == list.fingerprint;
    }();
    Resolved mirror = from;
    if (same) {
      // What is listed there is what is listed here: both may count from where this one does. Where either side has but one of it,
      // the other's loops do not matter.
      mirror.irregular = to.irregular;
      if (from.laid.shape.dimensions == 0 || to.laid.shape.dimensions == 0) mirror.laid.shape = to.laid.shape;
      mirror.laid.shape.offset = to.laid.shape.offset;
      mirror.laid.base = at(static_cast<std::byte*>(from.laid.base), from.laid.shape.offset - to.laid.shape.offset);
    }
    if (to.mirrors(mirror) && copy_listed(site, stream, to, mirror, begin, end)) return true;
  }
  if (list.run_bytes == 0) {
    if (!to.contiguous()) return false;
    const kernel::UnitList units{list.data, list.entries, list.bytes, list.shift, list.wide, list.loops};
    site.copies.along(stream, units, {to.first(begin), true}, {from.laid.base, false}, begin, end,
                      begin / list.bytes * list.entries, ((end - 1) / list.bytes + 1) * list.entries);
    return true;
  }
  from.laid =
      with_table_inside(from.laid, {list.data, list.shift, list.wide}, list.bytes / list.run_bytes, list.run_bytes);
  if (!to.irregular) {
    site.copies.laid(stream, to.laid, from.laid, begin, end);
    return true;
  }
  const std::lock_guard lock(site.mutex);
  Irregular& known = site.lists.find(to.irregular);
  List* const own = site.lists.list(known, true);
  if (own == nullptr) return false;
  while (!own->whole()) site.lists.fill_part(known, *own);
  site.lists.before_launch(*own, stream);
  site.copies.laid(stream, to.with_table(*own), from.laid, begin, end);
  site.lists.after_launch(*own, stream);
  return true;
}

// With lists that are kept. False where one cannot be had.
bool Mover::copy_listed(Site& site, gpu::StreamView stream, const Resolved& to, const Resolved& from, std::size_t begin,
                        std::size_t end) {
  const bool capturing = stream.capturing();
  const std::lock_guard lock(site.mutex);
  Lists& lists = site.lists;
  Irregular* const to_known = to.irregular ? &lists.find(to.irregular) : nullptr;
  Irregular* const from_known = from.irregular ? &lists.find(from.irregular) : nullptr;
  Irregular& known = to_known != nullptr ? *to_known : *from_known;
  const Resolved& irregular = to_known != nullptr ? to : from;
  const bool mirrored = to.mirrors(from);
  const bool single = to.contiguous() || from.contiguous() || mirrored;
  const layout::Node& node = *known.node;
  const bool table = tabled(known, single);

  List* const first = lists.list(known, table);
  List* second = nullptr;
  if (first == nullptr) return false;
  if (to_known != nullptr && from_known != nullptr && from_known != to_known) {
    second = lists.list(*from_known, table, first);
    if (second == nullptr) return false;
  }
  if (capturing) {
    if (!lists.keep_forever(*first) || (second != nullptr && !lists.keep_forever(*second))) return false;
  }

  const auto launch_units = [&](kernel::UnitList list, std::size_t low, std::size_t high, std::uint64_t from_unit,
                                std::uint64_t to_unit) {
    if (low >= high) return;
    list.loops = irregular.laid.shape;
    // A packed side begins with byte `begin` of the stream, wherever this part begins.
    const auto side = [&](const Resolved& resolved) {
      return kernel::UnitSide{resolved.irregular ? resolved.laid.base : resolved.first(low), !resolved.irregular};
    };
    site.copies.along(stream, list, side(to), side(from), low, high, from_unit, to_unit);
  };
  const auto launch = [&](std::size_t low, std::size_t high) {
    if (low >= high) return;
    if (table) {
      const auto side = [&](const Resolved& resolved, const List& list) {
        return resolved.irregular ? resolved.with_table(list) : resolved.laid;
      };
      site.copies.laid(stream, side(to, *first), side(from, second != nullptr ? *second : *first), low, high);
      return;
    }
    const kernel::UnitList list = first->as_units();
    std::uint64_t from_unit = 0, to_unit = 0;
    if (low / node.size == (high - 1) / node.size) {
      const std::size_t round = low / node.size;
      std::tie(from_unit, to_unit) = first->units_of(low % node.size, (high - 1) % node.size + 1);
      from_unit += round * first->entries();
      to_unit += round * first->entries();
    } else {
      from_unit = low / node.size * first->entries() + first->units_of(low % node.size, node.size).first;
      to_unit = (high - 1) / node.size * first->entries() + first->units_of(0, (high - 1) % node.size + 1).second;
    }
    launch_units(list, low, high, from_unit, to_unit);
  };

  if (!first->whole() && second == nullptr && irregular.laid.shape.dimensions == 0) {
    // What an error has left of an earlier use.
    if (first->filled() > begin) {
      lists.before_launch(*first, stream);
      launch(begin, std::min(end, first->filled()));
    }
    // First use: a part is launched while the next one is made, and where it was made if that can be.
    while (!first->whole()) {
      const std::size_t done = first->filled();
      const bool launched =
          lists.fill_part(known, *first, stream, [&](const kernel::UnitList& units, std::size_t filled) {
            launch_units(units, std::max(begin, done), std::min(end, filled), 0, units.count);
          });
      if (launched) continue;
      lists.before_launch(*first, stream);
      launch(std::max(begin, done), std::min(end, first->filled()));
    }
  } else {
    while (!first->whole()) lists.fill_part(known, *first);
    if (second != nullptr)
      while (!second->whole()) lists.fill_part(*from_known, *second);
    if (!capturing) {
      lists.before_launch(*first, stream);
      if (second != nullptr) lists.before_launch(*second, stream);
    }
    launch(begin, end);
  }
  if (!capturing) {
    lists.after_launch(*first, stream);
    if (second != nullptr) lists.after_launch(*second, stream);
  }
  return true;
}

// With tables that are made for this copy alone, a window of the range after another. They count runs from the lowest byte
// of all, in 64 bits.
void Mover::copy_windows(Site& site, gpu::StreamView stream, const Side& to, const Side& from,
                         const Resolved& resolved_to, const Resolved& resolved_from, std::size_t begin,
                         std::size_t end) {
  const std::lock_guard lock(site.mutex);
  Lists& lists = site.lists;
  struct Windowed {
    const Side& side;
    const Resolved& resolved;
    std::size_t run = 0;
    std::vector<std::uint64_t> table;
    std::optional<Lists::Window> window;
  };
  Windowed sides[] = {{to, resolved_to, 0, {}, {}}, {from, resolved_from, 0, {}, {}}};
  // However this ends: what is enqueued goes on with them.
  struct GivesBack {
    Lists& lists;
    const gpu::StreamView stream;
    Windowed (&sides)[2];
    ~GivesBack() {
      for (Windowed& one : sides)
        if (one.window) lists.give_back(std::move(*one.window), stream);
    }
  } const gives_back{lists, stream, sides};
  std::size_t step = end - begin;  // of the window
  for (Windowed& one : sides) {
    if (!one.resolved.irregular) continue;
    const layout::RunFacts facts = layout::run_facts(*one.side.layout_->node());
    one.run = facts.divisor;
    step = std::min(step, (Lists::window_bytes / sizeof(std::uint64_t) - 2) * one.run);
    one.window = lists.lend_window();
  }
  for (std::size_t low = begin; low < end;) {
    const std::size_t high = low + std::min(step, end - low);
    kernel::Laid laid[2];
    for (std::size_t i = 0; i < 2; ++i) {
      Windowed& one = sides[i];
      laid[i] = one.resolved.laid;
      if (!one.resolved.irregular) continue;
      // The runs that the window touches, whole.
      const std::size_t first = low / one.run * one.run, last = (high + one.run - 1) / one.run * one.run;
      one.table.clear();
      one.side.layout_->for_each_run(one.side.count_, first, last, [&](std::int64_t offset, std::size_t length) {
        for (std::size_t done = 0; done < length; done += one.run)
          one.table.push_back(static_cast<std::uint64_t>(offset) + done);
      });
      std::uint64_t bits = one.run | 16;
      for (const std::uint64_t place : one.table) bits |= place;
      const auto shift = static_cast<std::uint32_t>(std::countr_zero(bits));
      for (std::uint64_t& place : one.table)  // may be negative
        place = static_cast<std::uint64_t>(static_cast<std::int64_t>(place) >> shift);
      lists.fill_window(*one.window, stream, one.table.data(), one.table.size() * sizeof(std::uint64_t));
      laid[i].shape = {};
      laid[i].shape.width = one.run;
      laid[i].shape.dimensions = 1;
      laid[i].shape.dimension[0] = {one.table.size(), 0};
      // Its first entry is run first / run of the stream.
      const auto skipped = first / one.run * sizeof(std::uint64_t);
      laid[i].table = {reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(one.window->data()) - skipped),
                       shift, true};
    }
    site.copies.laid(stream, laid[0], laid[1], low, high);
    low = high;
  }
}

}  // namespace crosslane::lane
