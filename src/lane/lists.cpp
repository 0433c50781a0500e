// See lists.h.
#include "lane/lists.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/copy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

namespace crosslane::lane {
namespace {

constexpr std::size_t grain = 256;       // of memory that lists take
constexpr std::size_t mark_every = 256;  // units
// Parts grow, so that the first launch comes soon and later ones are large (TYPES, section 3.2: preparation and kernel
// are pipelined).
constexpr std::size_t first_part = std::size_t{16} << 10, largest_part = std::size_t{512} << 10;
constexpr std::size_t most_known = 512, most_aliases = 16;

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + grain - 1) / grain * grain; }

// The entries of one part, in numbers of either width.
template <class Number>
class Maker {
 public:
  Maker(const layout::Node& node, std::uint32_t shift, bool makes_table, std::size_t entries)
      : low_(static_cast<std::uint64_t>(node.low)), shift_(shift) {
    if (makes_table) {
      table.reserve(entries);
    } else {
      units.reserve(entries + 1);
    }
  }

  void add_table_run(std::int64_t offset, std::size_t length, std::size_t run) {
    for (std::size_t done = 0; done < length; done += run) table.push_back(scaled(distance(offset) + done));
  }
  void add_units(std::int64_t offset, std::size_t length, std::size_t packed) {
    for (std::size_t done = 0; done < length; done += kernel::unit_limit)
      units.push_back({scaled(distance(offset) + done), scaled(packed + done)});
  }
  void end_units(std::size_t packed) { units.push_back({0, scaled(packed)}); }

  std::vector<Number> table;
  std::vector<kernel::UnitOf<Number>> units;

 private:
  [[nodiscard]] std::uint64_t distance(std::int64_t offset) const { return static_cast<std::uint64_t>(offset) - low_; }
  [[nodiscard]] Number scaled(std::uint64_t number) const { return static_cast<Number>(number >> shift_); }

  const std::uint64_t low_;
  const std::uint32_t shift_;
};

}  // namespace

std::pair<std::uint64_t, std::uint64_t> List::units_of(std::size_t begin, std::size_t end) const {
  const auto after = std::ranges::upper_bound(marks_, begin);
  const auto first = after == marks_.begin() ? 0 : static_cast<std::uint64_t>(after - marks_.begin() - 1) * mark_every;
  const auto beyond = std::ranges::lower_bound(marks_, end);
  return {first, std::min<std::uint64_t>(static_cast<std::uint64_t>(beyond - marks_.begin()) * mark_every, entries_)};
}

Lists::Lists(const gpu::Driver& driver, PinnedPool& pinned, std::size_t limit)
    : driver_(driver), pinned_(pinned), limit_(limit / grain * grain), events_(driver), upload_(driver) {}

Irregular& Lists::find(const layout::NodePointer& node) {
  if (const auto found = by_node_.find(node.get()); found != by_node_.end()) {
    known_.splice(known_.begin(), known_, found->second);
    return **found->second;
  }
  const std::uint64_t hash = layout::hash(*node);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    Irregular& same = **entry->second;
    if (!layout::equal(*same.node, *node)) continue;
    known_.splice(known_.begin(), known_, entry->second);
    if (same.aliases.size() == most_aliases) {
      by_node_.erase(same.aliases.front().get());
      same.aliases.erase(same.aliases.begin());
    }
    same.aliases.push_back(node);
    by_node_.emplace(node.get(), entry->second);
    return same;
  }
  for (auto old = known_.end(); known_.size() >= most_known && old != std::next(known_.begin());) {
    --old;
    Irregular& irregular = **old;
    if ((irregular.table && !idle(*irregular.table)) || (irregular.units && !idle(*irregular.units))) continue;
    if (irregular.table) release(*irregular.table);
    if (irregular.units) release(*irregular.units);
    by_node_.erase(irregular.node.get());
    for (const auto& alias : irregular.aliases) by_node_.erase(alias.get());
    const auto [begin, end] = by_hash_.equal_range(irregular.hash);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second != old) continue;
      by_hash_.erase(entry);
      break;
    }
    old = known_.erase(old);
  }
  auto fresh = std::make_unique<Irregular>();
  fresh->node = node;
  fresh->facts = layout::run_facts(*node);
  fresh->hash = hash;
  known_.push_front(std::move(fresh));
  by_node_.emplace(node.get(), known_.begin());
  by_hash_.emplace(hash, known_.begin());
  return *known_.front();
}

List* Lists::list(Irregular& irregular, bool table, const List* keep) {
  auto& made = table ? irregular.table : irregular.units;
  if (made) return made.get();
  const layout::Node& node = *irregular.node;
  auto list = std::make_unique<List>();
  list->table_ = table;
  list->bytes_ = node.size;
  list->run_bytes_ = irregular.facts.divisor;
  list->shift_ = static_cast<std::uint32_t>(std::countr_zero(std::min<std::uint64_t>(irregular.facts.alignment, 16)));
  const std::uint64_t reach = static_cast<std::uint64_t>(node.high) - static_cast<std::uint64_t>(node.low);
  constexpr std::uint64_t narrow = std::numeric_limits<std::uint32_t>::max();
  list->wide_ = (reach >> list->shift_) > narrow || (!table && (node.size >> list->shift_) > narrow);
  const std::size_t number = list->wide_ ? 8 : 4;
  // An upper bound: a part's end cuts a run, and so may the limit of units. Both numbers are far below 2^63.
  const std::uint64_t entries =
      table ? node.size / list->run_bytes_
            : std::min<std::uint64_t>(node.run_count, node.size) + 2 * (node.size / kernel::unit_limit) + 64;
  if (entries > limit_ / number || !reserve(*list, entries * number * (table ? 1 : 2), keep)) return nullptr;
  list->part_bytes_ = first_part;
  made = std::move(list);
  return made.get();
}

void Lists::fill_part(const Irregular& irregular, List& list) {
  reap();
  const layout::Node& node = *irregular.node;
  const layout::Layout whole(irregular.node, 0, 0);
  const std::size_t begin = list.filled_;
  // So many packed bytes that their entries take about a part. A cut at a multiple of 16 bytes keeps every number whole.
  const std::size_t number = list.wide_ ? 8 : 4;
  const std::size_t entries = std::max<std::size_t>(list.part_bytes_ / number / (list.table_ ? 1 : 2), 1);
  const std::size_t a_run =
      list.table_
          ? list.run_bytes_
          : std::min<std::size_t>(std::max<std::size_t>(node.size / std::max<std::uint64_t>(node.run_count, 1), 1),
                                  kernel::unit_limit);
  std::size_t stride = 0;
  if (__builtin_mul_overflow(entries, a_run, &stride)) stride = node.size;
  if (!list.table_) stride = (stride + kernel::unit_limit - 1) / kernel::unit_limit * kernel::unit_limit;
  const std::size_t end = node.size - begin <= stride ? node.size : begin + stride;
  list.part_bytes_ = std::min(list.part_bytes_ * 2, largest_part);

  const auto upload = [&](const void* data, std::size_t bytes, std::size_t at) {
    HostBlock block = pinned_.lend(bytes);
    std::memcpy(block.data(), data, bytes);
    gpu::copy_async(list.data_ + at, block.data(), bytes, upload_);
    auto copied = events_.lend();
    copied->record(upload_);
    uploading_.emplace_back(std::move(copied), std::move(block));
    if (!list.uploaded_) list.uploaded_ = events_.lend();
    (*list.uploaded_)->record(upload_);
  };
  const auto make = [&]<class Number>(Number) {
    Maker<Number> maker(node, list.shift_, list.table_, entries);
    std::size_t packed = begin;
    whole.for_each_run(1, begin, end, [&](std::int64_t offset, std::size_t length) {
      if (list.table_) {
        maker.add_table_run(offset, length, list.run_bytes_);
      } else {
        maker.add_units(offset, length, packed);
      }
      packed += length;
    });
    if (list.table_) {
      upload(maker.table.data(), maker.table.size() * sizeof(Number), list.entries_ * sizeof(Number));
      list.entries_ += maker.table.size();
      return;
    }
    using One = kernel::UnitOf<Number>;
    const std::uint64_t fresh = maker.units.size();
    maker.end_units(end);
    if ((list.entries_ + maker.units.size()) * sizeof(One) > list.room_)
      throw base::Error(base::ErrorClass::intern, "a datatype has more runs than its tree tells");
    // The entry that ends a part becomes the next part's first: its packed bytes, all that was read of it, stay the same.
    upload(maker.units.data(), maker.units.size() * sizeof(One), list.entries_ * sizeof(One));
    for (std::uint64_t i = (mark_every - list.entries_ % mark_every) % mark_every; i < fresh; i += mark_every)
      list.marks_.push_back(static_cast<std::size_t>(std::uint64_t{maker.units[i].packed} << list.shift_));
    list.entries_ += fresh;
  };
  if (list.wide_) {
    make(std::uint64_t{});
  } else {
    make(std::uint32_t{});
  }
  list.filled_ = end;
}

void Lists::before_launch(List& list, gpu::StreamView stream) {
  if (list.settled_) return;
  if (list.whole() && (*list.uploaded_)->done()) {
    list.settled_ = true;
    return;
  }
  (*list.uploaded_)->make_wait(stream);
}

void Lists::after_launch(List& list, gpu::StreamView stream) {
  constexpr std::size_t many = 8;
  if (list.uses_.size() >= many) std::erase_if(list.uses_, [](gpu::EventPool::Lent& use) { return use->done(); });
  auto use = events_.lend();
  use->record(stream);
  list.uses_.push_back(std::move(use));
}

bool Lists::keep_forever(List& list) {
  if (!list.whole() || (!list.settled_ && !(*list.uploaded_)->done())) return false;
  list.settled_ = true;
  list.kept_forever_ = true;
  return true;
}

bool Lists::idle(List& list) {
  if (!list.whole() || list.kept_forever_ || !(*list.uploaded_)->done()) return false;
  std::erase_if(list.uses_, [](gpu::EventPool::Lent& use) { return use->done(); });
  return list.uses_.empty();
}

void Lists::release(List& list) { free_.give_back(static_cast<std::size_t>(list.data_ - memory_.data()), list.room_); }

bool Lists::evict_one(const List* keep) {
  for (auto old = known_.rbegin(); old != known_.rend(); ++old) {
    for (auto* const made : {&(*old)->table, &(*old)->units}) {
      if (!*made || made->get() == keep || !idle(**made)) continue;
      release(**made);
      made->reset();
      return true;
    }
  }
  return false;
}

bool Lists::reserve(List& list, std::size_t bytes, const List* keep) {
  if (!std::exchange(memory_tried_, true)) {
    try {
      memory_ = gpu::Buffer(driver_, limit_);
      free_ = base::FreeRanges(limit_);
    } catch (const base::Error&) {
      base::log(
          base::Topic::warning,
          "the GPU has no {} bytes left for lists of irregular datatypes: they are made anew for every copy; lower "
          "CROSSLANE_LIST_LIMIT",
          limit_);
    }
  }
  const std::size_t wanted = rounded(bytes);
  if (wanted > memory_.size()) return false;
  for (;;) {
    if (const auto at = free_.take(wanted)) {
      list.data_ = memory_.data() + *at;
      list.room_ = wanted;
      return true;
    }
    if (!evict_one(keep)) return false;
  }
}

void Lists::reap() {
  const auto under_way =
      std::ranges::find_if(uploading_, [](auto& upload) { return !upload.first->done(); });  // in the stream's order
  uploading_.erase(uploading_.begin(), under_way);
}

Lists::Window Lists::lend_window() {
  for (auto window = windows_.begin(); window != windows_.end(); ++window) {
    if (!(*window->used)->done()) continue;
    Window lent = std::move(*window);
    windows_.erase(window);
    lent.staging.clear();
    return lent;
  }
  Window fresh;
  fresh.buffer = gpu::Buffer(driver_, window_bytes);
  return fresh;
}

void Lists::fill_window(Window& window, gpu::StreamView stream, const void* entries, std::size_t bytes) {
  HostBlock block = pinned_.lend(bytes);
  std::memcpy(block.data(), entries, bytes);
  gpu::copy_async(window.buffer.data(), block.data(), bytes, stream);
  window.staging.push_back(std::move(block));
}

void Lists::give_back(Window window, gpu::StreamView stream) {
  if (!window.used) window.used = events_.lend();
  (*window.used)->record(stream);
  windows_.push_back(std::move(window));
}

}  // namespace crosslane::lane
