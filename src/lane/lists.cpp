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
// are pipelined). A part costs some ten microseconds of the driver: no less than making the first one takes.
constexpr std::size_t first_part = std::size_t{16} << 10, largest_part = std::size_t{1} << 20, growth = 4;
constexpr std::size_t most_known = 512, most_aliases = 16, most_alias_bytes = std::size_t{1} << 20;
// A run takes four times as much in a tree as in a list.
constexpr std::size_t least_kept = std::size_t{64} << 20, kept_a_listed_byte = 4;

std::size_t entry_bytes(const List& list) { return (list.wide() ? 8U : 4U) * (list.table() ? 1U : 2U); }
constexpr std::size_t rounded(std::size_t bytes) { return (bytes + grain - 1) / grain * grain; }

// The entries of one part, in numbers of either width, until `most` of them are there.
template <class Number>
class Maker {
 public:
  Maker(const layout::Node& node, std::uint32_t shift, std::byte* to, std::size_t most)
      : low_(static_cast<std::uint64_t>(node.low)),
        shift_(shift),
        table_(reinterpret_cast<Number*>(to)),
        units_(reinterpret_cast<kernel::UnitOf<Number>*>(to)),
        most_(most) {}

  /// Equal runs of `length` bytes each, many of them: nothing but a subtraction and a shift for each.
  void add_equal_runs(const layout::Run* runs, std::size_t count) {
    count = std::min(count, most_ - made_);
    Number* const to = table_ + made_;
    for (std::size_t i = 0; i < count; ++i) to[i] = scaled(distance(runs[i].offset));
    made_ += count;
  }
  /// The bytes of the run that were taken; all of them unless there was no room.
  std::size_t add_table_run(std::int64_t offset, std::size_t length, std::size_t run) {
    std::size_t done = 0;
    for (; done < length && made_ < most_; done += run) table_[made_++] = scaled(distance(offset) + done);
    return done;
  }
  std::size_t add_units(std::int64_t offset, std::size_t length, std::size_t packed) {
    const std::size_t wanted = (length + kernel::unit_limit - 1) / kernel::unit_limit;
    const std::size_t count = std::min(wanted, most_ - made_);
    const auto step = static_cast<Number>(kernel::unit_limit >> shift_);
    kernel::UnitOf<Number>* const to = units_ + made_;
    Number place = scaled(distance(offset)), before = scaled(packed);
    for (std::size_t i = 0; i < count; ++i, place += step, before += step) to[i] = {place, before};
    made_ += count;
    return count == wanted ? length : count * kernel::unit_limit;
  }
  /// Has room beyond `most`.
  void end_units(std::size_t packed) { units_[made_] = {0, scaled(packed)}; }

  [[nodiscard]] bool full() const noexcept { return made_ == most_; }
  [[nodiscard]] std::size_t made() const noexcept { return made_; }
  /// Packed bytes before a unit.
  [[nodiscard]] std::size_t before(std::size_t unit) const noexcept {
    return static_cast<std::size_t>(std::uint64_t{units_[unit].packed} << shift_);
  }

 private:
  [[nodiscard]] std::uint64_t distance(std::int64_t offset) const { return static_cast<std::uint64_t>(offset) - low_; }
  [[nodiscard]] Number scaled(std::uint64_t number) const { return static_cast<Number>(number >> shift_); }

  const std::uint64_t low_;
  const std::uint32_t shift_;
  Number* const table_;
  kernel::UnitOf<Number>* const units_;
  const std::size_t most_;
  std::size_t made_ = 0;
};

}  // namespace

std::pair<std::uint64_t, std::uint64_t> List::units_of(std::size_t begin, std::size_t end) const {
  const auto after = std::ranges::upper_bound(marks_, begin);
  const auto first = after == marks_.begin() ? 0 : static_cast<std::uint64_t>(after - marks_.begin() - 1) * mark_every;
  const auto beyond = std::ranges::lower_bound(marks_, end);
  return {first, std::min<std::uint64_t>(static_cast<std::uint64_t>(beyond - marks_.begin()) * mark_every, entries_)};
}

Lists::Lists(const gpu::Driver& driver, PinnedPool& pinned, std::size_t limit)
    : driver_(driver),
      pinned_(pinned),
      limit_(limit / grain * grain),
      most_kept_(std::max(least_kept, kept_a_listed_byte * limit_)),
      events_(driver),
      upload_(driver) {}

Irregular& Lists::find(const layout::NodePointer& node) {
  reap();
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
    while (!same.aliases.empty() &&
           (same.aliases.size() == most_aliases || same.tree_bytes * same.aliases.size() >= most_alias_bytes)) {
      by_node_.erase(same.aliases.front().get());
      same.aliases.erase(same.aliases.begin());
    }
    same.aliases.push_back(node);
    by_node_.emplace(node.get(), entry->second);
    return same;
  }
  const std::size_t tree_bytes = layout::tree_bytes(*node);
  std::size_t kept = tree_bytes;
  for (const auto& each : known_) kept += each->kept_bytes();
  const auto is_too_much = [&] { return known_.size() >= most_known || (kept > most_kept_ && !known_.empty()); };
  for (auto old = known_.end(); is_too_much() && old != std::next(known_.begin());) {
    --old;
    Irregular& irregular = **old;
    if ((irregular.table && !idle(*irregular.table)) || (irregular.units && !idle(*irregular.units))) continue;
    if (irregular.table) release(*irregular.table);
    if (irregular.units) release(*irregular.units);
    kept -= irregular.kept_bytes();
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
  fresh->tree_bytes = tree_bytes;
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
  if (entries > limit_ / number || !reserve(*list, entries * entry_bytes(*list), keep)) return nullptr;
  list->part_bytes_ = first_part;
  made = std::move(list);
  return made.get();
}

// Entries in memory that they are uploaded from, which reach to packed byte `end`.
struct Lists::Part {
  HostBlock block;
  std::uint64_t entries;
  std::size_t bytes, end;
  std::vector<std::size_t> marks;  // to follow the list's
};

Lists::Part Lists::make_part(const Irregular& irregular, List& list) {
  const layout::Node& node = *irregular.node;
  const auto make = [&]<class Number>(Number) {
    const std::size_t entry = sizeof(Number) * (list.table_ ? 1 : 2), ends = list.table_ ? 0 : 1;
    const std::size_t room = std::min(list.part_bytes_, list.room_ - list.entries_ * entry) / entry;
    if (room <= ends) throw base::Error(base::ErrorClass::intern, "a datatype has more runs than its tree tells");
    Part part{pinned_.lend(room * entry), 0, 0, list.filled_, {}};
    Maker<Number> maker(node, list.shift_, part.block.data(), room - ends);
    std::size_t& at = part.end;
    const auto add = [&](std::int64_t offset, std::size_t length) {
      at += list.table_ ? maker.add_table_run(offset, length, list.run_bytes_) : maker.add_units(offset, length, at);
    };
    if (node.kind != layout::Node::Kind::runs) {
      // A slice of about so many entries after another, for what lies beyond the part's end is walked in vain. Units are cut
      // where slices end, at multiples of what keeps every number whole.
      constexpr std::size_t slice_entries = 1024;
      const std::size_t average = node.size / std::max<std::uint64_t>(std::min(node.run_count, node.size), 1);
      const std::size_t a_run = list.table_ ? list.run_bytes_ : std::min(average, kernel::unit_limit);
      const std::size_t slice_grain = list.table_ ? list.run_bytes_ : kernel::unit_limit;
      std::size_t slice = 0;
      if (__builtin_mul_overflow(slice_entries, a_run, &slice)) slice = node.size;
      slice = std::max(slice / slice_grain, std::size_t{1}) * slice_grain;
      const layout::Layout whole(irregular.node, 0, 0);
      while (at < node.size && !maker.full()) {
        const std::size_t end = node.size - at <= slice ? node.size : at + slice;
        whole.for_each_run(1, at, end, [&](std::int64_t offset, std::size_t length) {
          if (!maker.full()) add(offset, length);
        });
      }
    } else if (list.table_ && node.run_count == node.size / list.run_bytes_) {
      const std::size_t first = at / list.run_bytes_;
      maker.add_equal_runs(node.list.data() + first, node.run_count - first);
      at += maker.made() * list.run_bytes_;
    } else {
      const auto after = std::ranges::upper_bound(node.list, at, {}, &layout::Run::packed);
      for (auto run = std::prev(after); at < node.size && !maker.full(); ++run)
        add(run->offset + static_cast<std::int64_t>(at - run->packed), std::next(run)->packed - at);
    }
    if (!list.table_) {
      for (std::uint64_t i = (mark_every - list.entries_ % mark_every) % mark_every; i < maker.made(); i += mark_every)
        part.marks.push_back(maker.before(i));
      maker.end_units(at);
    }
    part.entries = maker.made();
    part.bytes = (maker.made() + ends) * entry;
    return part;
  };
  return list.wide_ ? make(std::uint64_t{}) : make(std::uint32_t{});
}

void Lists::fill_part(const Irregular& irregular, List& list) {
  reap();
  Part part = make_part(irregular, list);
  upload(list, part, hold(part, false));
}

bool Lists::fill_part(const Irregular& irregular, List& list, gpu::StreamView stream,
                      base::FunctionRef<void(const kernel::UnitList&, std::size_t)> launch) {
  reap();
  Part part = make_part(irregular, list);
  const bool readable = !list.table_ && part.block.mapped();
  Upload& held = hold(part, readable);
  if (readable) {
    launch({held.block.data(), part.entries, part.end - list.filled_, list.shift_, list.wide_, {}}, part.end);
    (*held.read)->record(stream);
  }
  upload(list, part, held);
  return readable;
}

// From before the first reader on, so that what fails in between cannot take the memory from it.
Lists::Upload& Lists::hold(Part& part, bool read) {
  Upload held{std::make_shared<gpu::EventPool::Lent>(events_.lend()), {}, std::move(part.block)};
  if (read) held.read = events_.lend();
  uploading_.push_back(std::move(held));
  return uploading_.back();
}

void Lists::upload(List& list, const Part& part, const Upload& held) {
  // The entry that ends a part becomes the next part's first: its packed bytes, all that was read of it, stay the same.
  gpu::copy_async(list.data_ + list.entries_ * entry_bytes(list), held.block.data(), part.bytes, upload_);
  (*held.uploaded)->record(upload_);
  list.uploaded_ = held.uploaded;
  list.marks_.insert(list.marks_.end(), part.marks.begin(), part.marks.end());
  list.entries_ += part.entries;
  list.filled_ = part.end;
  list.part_bytes_ = std::min(list.part_bytes_ * growth, largest_part);
}

void Lists::before_launch(List& list, gpu::StreamView stream) {
  if (!settled(list)) list.uploaded().make_wait(stream);
}

void Lists::after_launch(List& list, gpu::StreamView stream) {
  constexpr std::size_t many = 8;
  if (list.uses_.size() >= many) std::erase_if(list.uses_, [](gpu::EventPool::Lent& use) { return use->done(); });
  auto use = events_.lend();
  use->record(stream);
  list.uses_.push_back(std::move(use));
}

bool Lists::settled(List& list) {
  list.settled_ = list.settled_ || (list.whole() && list.uploaded().done());
  return list.settled_;
}

bool Lists::keep_forever(List& list) {
  if (!settled(list)) return false;
  list.kept_forever_ = true;
  return true;
}

std::shared_ptr<const void> Lists::hold(List& list) {
  if (!settled(list)) return nullptr;
  if (list.hold_ == nullptr) list.hold_ = std::make_shared<char>();
  return list.hold_;
}

bool Lists::idle(List& list) {
  if (list.filled_ == 0) return true;  // it was reserved for a copy that went another way
  if (list.kept_forever_ || list.hold_.use_count() > 1 || !settled(list)) return false;
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
  // A GPU that is full may be so for a moment only: it is asked again, more and more seldom.
  if (memory_.size() == 0 && std::has_single_bit(++short_of_)) {
    try {
      memory_ = gpu::Buffer(driver_, limit_);
      free_ = base::FreeRanges(limit_);
    } catch (const base::Error&) {
      if (short_of_ == 1)
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
  std::erase_if(uploading_,
                [](Upload& upload) { return (*upload.uploaded)->done() && (!upload.read || (*upload.read)->done()); });
  for (Window& window : windows_)
    if (!window.staging.empty() && (*window.used)->done()) window.staging.clear();
}

Lists::Window Lists::lend_window() {
  reap();
  std::erase_if(windows_, [](Window& window) { return window.buffer.size() == 0 && (*window.used)->done(); });
  for (auto window = windows_.begin(); window != windows_.end(); ++window) {
    if (!(*window->used)->done()) continue;
    Window lent = std::move(*window);
    windows_.erase(window);
    return lent;
  }
  Window fresh;
  try {
    fresh.buffer = gpu::Buffer(driver_, window_bytes);
  } catch (const base::Error& error) {
    if (!base::is_shortage(error)) throw;
    fresh.beside = pinned_.lend(window_bytes);
    if (!fresh.beside.mapped()) throw;
  }
  return fresh;
}

void Lists::fill_window(Window& window, gpu::StreamView stream, const void* entries, std::size_t bytes) {
  HostBlock block = pinned_.lend(bytes);
  std::memcpy(block.data(), entries, bytes);
  gpu::copy_async(window.data(), block.data(), bytes, stream);
  window.staging.push_back(std::move(block));
}

void Lists::give_back(Window window, gpu::StreamView stream) noexcept {
  try {
    if (!window.used) window.used = events_.lend();
    (*window.used)->record(stream);
    windows_.push_back(std::move(window));
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a window of lists is given up: {}", error.what());  // of a GPU that has failed
  }
}

}  // namespace crosslane::lane
