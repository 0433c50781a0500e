// See argument_builder.h.
#include "interpose/argument_builder.h"

#include "base/error.h"
#include "interpose/memories.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace crosslane::interpose {
namespace {

using lane::byte_at;

std::byte* writable(const void* base) { return const_cast<std::byte*>(static_cast<const std::byte*>(base)); }

// Parts of a packed host copy start at multiples of a cache line, which copies like.
constexpr std::ptrdiff_t alignment = 64;

// A host copy has the layout of the original unless that is large and mostly holes: MPI then packs and unpacks it as it
// would the original. A packed copy is sent as bytes, and may be cut inside an element, which not every MPI's receiver
// takes (MPICH reports a truncation for structs of different types beyond its eager size).
bool mirrors(std::size_t span, std::size_t packed) {
  constexpr std::size_t holes_at_most = 4;
  constexpr std::size_t always = std::size_t{64} << 20;
  return span <= always || span / holes_at_most <= packed;
}

}  // namespace

std::shared_ptr<const layout::Layout> ArgumentBuilder::layout_of(const char* name, MPI_Datatype type) const {
  try {
    return layouts_.of(type);
  } catch (const base::Error& error) {
    throw base::Error(error.error_class(), "{}: datatype of argument {}: {}", call_, name, error.what());
  }
}

Located ArgumentBuilder::locate(const char* name, const void* base, const layout::Layout& layout, MPI_Count count,
                                Apart apart) const {
  return interpose::locate(copier_, call_, name, base, layout, count, apart, known_.seen);
}

void ArgumentBuilder::single(Argument& argument, const char* name, const void* base, const char* count_name,
                             MPI_Count count, MPI_Count blocks, MPI_Datatype type, Direction direction, lane::Form form,
                             bool received, bool contiguous) {
  argument.address_ = writable(base);
  argument.count_ = count;
  argument.type_ = type;
  if (direction == Direction::none || base == mpi::in_place()) return;
  if (count < 0)
    throw base::Error(base::ErrorClass::count, "{}: argument {} is {}; a count is never negative", call_, count_name,
                      count);
  argument.received_ = received;
  argument.direction_ = direction;
  if (count == 0 || blocks == 0) return;

  auto layout = known_.layout != nullptr ? std::move(known_.layout) : layout_of(name, type);
  MPI_Count all = 0;
  if (__builtin_mul_overflow(count, blocks, &all)) {
    throw base::Error(base::ErrorClass::count, "{}: argument {} is {}, for each of {} peers: more than 63 bits count",
                      call_, count_name, count, blocks);
  }
  // What keeps its type keeps its layout.
  const Located located = locate(name, base, *layout, all, form == lane::Form::packed ? Apart::if_meant : Apart::never);
  const std::optional<lane::Place> place = located.first_place();
  if (!place) return;
  argument.place_ = *place;
  argument.seen_ = located.seen;
  const std::size_t bytes = layout->packed_size(all);
  argument.bytes_ = bytes;
  if (!located.segments.empty()) {
    for (const Segment& each : located.segments)
      argument.several_.push_back({static_cast<const std::byte*>(base), layout, all, each.place,
                                   static_cast<std::ptrdiff_t>(each.begin), each.begin, each.end - each.begin});
    argument.apart_ = true;
    argument.host_bytes_ = bytes;
    argument.type_ = layouts_.packed_twin(type);
    return;
  }
  auto& part = argument.only_.emplace(
      Argument::Part{static_cast<const std::byte*>(base), std::move(layout), all, argument.place_, 0, 0, bytes});
  argument.form_ = form;
  const auto span = part.layout->span(all);
  if (form == lane::Form::mirror || part.layout->dense() ||
      (!contiguous && mirrors(static_cast<std::size_t>(span.end - span.begin), bytes))) {
    argument.form_ = lane::Form::mirror;
    argument.host_bytes_ = static_cast<std::size_t>(span.end - span.begin);
    argument.first_ = static_cast<std::ptrdiff_t>(-span.begin);
    part.offset = argument.first_;
  } else {
    argument.host_bytes_ = bytes;
    argument.type_ = layouts_.packed_twin(type);
  }
}

void ArgumentBuilder::blocks(Argument& argument, const char* name, const void* base, BlockList list, bool in_bytes,
                             MPI_Datatype type, Direction direction) const {
  argument.address_ = writable(base);
  argument.type_ = type;
  argument.direction_ = direction;
  // Open MPI refuses arrays at null, even of no elements (a rank without neighbours).
  argument.counts_.reserve(list.size() + 1);
  argument.displacements_.reserve(list.size() + 1);
  argument.types_.reserve(list.size() + 1);
  for (const Block& block : list) {
    argument.counts_.push_back(block.count);
    argument.displacements_.push_back(block.displacement);
    if (in_bytes) argument.types_.push_back(block.type);
  }
  if (direction == Direction::none || base == mpi::in_place()) return;

  // One part a block that holds anything, or several where it lies in several memories.
  argument.several_.reserve(list.size());
  std::shared_ptr<const layout::Layout> layout;
  std::vector<std::size_t> holds;  // the block of each part
  layout::Span whole{};            // of all blocks, from the buffer's address
  bool any_on_gpu = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Block& block = list[i];
    if (block.count == 0) continue;
    if (in_bytes || layout == nullptr) layout = layout_of(name, block.type);
    if (layout->size() == 0) continue;
    std::ptrdiff_t displacement = block.displacement;
    if (!in_bytes && __builtin_mul_overflow(block.displacement, layout->extent(), &displacement)) {
      throw base::Error(base::ErrorClass::argument,
                        "{}: displacement {} of block {} of argument {} reaches farther than 64-bit addresses", call_,
                        block.displacement, i, name);
    }
    const std::size_t bytes = layout->packed_size(block.count);
    // Distances from MPI_BOTTOM are addresses, and a type of a block may have absolute ones.
    const Located located = locate(name, byte_at(base, displacement), *layout, block.count, Apart::if_meant);
    const auto segments = located.in_segments(bytes);
    const bool first = argument.several_.empty();
    const std::optional<lane::Place> place = located.first_place();
    if (place && !std::exchange(any_on_gpu, true)) argument.place_ = *place;
    const auto span = layout->span(block.count);
    whole.begin = first ? displacement + span.begin : std::min(whole.begin, displacement + span.begin);
    whole.end = first ? displacement + span.end : std::max(whole.end, displacement + span.end);
    for (const Segment& each : segments) {
      argument.several_.push_back({byte_at(base, displacement), layout, block.count, each.place, displacement,
                                   each.begin, each.end - each.begin});
      holds.push_back(i);
    }
    argument.bytes_ += bytes;
  }
  if (!any_on_gpu) argument.several_.clear();
  if (argument.several_.empty()) {
    argument.bytes_ = 0;
    return;
  }
  const auto& parts = argument.several_;
  argument.apart_ = std::ranges::any_of(parts, [&](const Argument::Part& part) {
    return part.begin != 0 || !part.place || part.place->context != parts.front().place->context;
  });

  const auto length = static_cast<std::size_t>(whole.end - whole.begin);
  if (!argument.apart_ && mirrors(length, argument.bytes_)) {
    argument.form_ = lane::Form::mirror;
    argument.host_bytes_ = length;
    argument.first_ = static_cast<std::ptrdiff_t>(-whole.begin);
    for (auto& part : argument.several_) part.offset += argument.first_;
    return;
  }

  // Packed: blocks follow each other. Displacements are in elements of the packed type, or in bytes again.
  std::ptrdiff_t offset = 0;
  std::fill(argument.displacements_.begin(), argument.displacements_.end(), 0);  // empty blocks may point far outside
  for (std::size_t k = 0; k < holds.size(); ++k) {
    auto& part = argument.several_[k];
    const std::size_t i = holds[k];
    if (k == 0 || holds[k - 1] != i) {
      if (in_bytes) {
        offset = (offset + alignment - 1) / alignment * alignment;
        argument.displacements_[i] = offset;
        argument.types_[i] = layouts_.packed_twin(list[i].type);
      } else {
        argument.displacements_[i] = offset / static_cast<std::ptrdiff_t>(part.layout->size());
      }
    }
    part.offset = offset;
    offset += static_cast<std::ptrdiff_t>(part.bytes);
  }
  argument.host_bytes_ = static_cast<std::size_t>(offset);
  const bool same_as_packed = !in_bytes && layout->dense() && layout->true_lb() == 0;
  if (!in_bytes && !same_as_packed) argument.type_ = layouts_.packed_twin(type);
}

}  // namespace crosslane::interpose
