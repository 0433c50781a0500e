// See argument_builder.h.
#include "interpose/argument_builder.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cstdint>

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

base::Error ArgumentBuilder::several_memories(const char* name) const {
  return {base::ErrorClass::buffer,
          "{}: one part of argument {} is in host memory while another is in GPU memory; a buffer lies in one memory, "
          "so pass each by a call of its own",
          call_, name};
}

// With absolute addresses a datatype may reach several memories: its first members are asked about, and its last byte.
void ArgumentBuilder::check_all_on_host(const char* name, const void* base, const layout::Layout& layout,
                                        MPI_Count count) const {
  constexpr std::size_t members = 16;
  const auto looked_at = std::min<std::size_t>(layout.size(), std::size_t{1} << 20);  // of the packed stream
  std::array<std::int64_t, members + 1> bytes{};
  std::size_t found = 0;
  // A run cannot be told to be the last one: of many short ones the first few bytes have enough.
  for (std::size_t end = std::min<std::size_t>(looked_at, 256); found < members; end = std::min(looked_at, 16 * end)) {
    found = 0;
    layout.for_each_run(1, 0, end, [&](std::int64_t offset, std::size_t) {
      if (found < members) bytes[found++] = offset;
    });
    if (end == looked_at) break;
  }
  bytes[found++] = layout.span(count).end - 1;
  for (std::size_t i = 0; i < found; ++i)
    if (copier_.gpu().inspect(byte_at(base, static_cast<std::ptrdiff_t>(bytes[i]))).on_gpu())
      throw several_memories(name);
}

bool ArgumentBuilder::locate(const char* name, const void* base, const layout::Layout& layout, MPI_Count count,
                             lane::Place& place, gpu::PointerInfo* seen) const {
  if (count == 0 || layout.size() == 0) return false;
  const auto span = layout.span(count);
  const std::byte* const first = byte_at(base, static_cast<std::ptrdiff_t>(span.begin));
  const auto length = static_cast<std::size_t>(span.end - span.begin);
  auto& gpu = copier_.gpu();
  const bool known = seen_ != nullptr && reinterpret_cast<std::uintptr_t>(first) - seen_->base < seen_->size;
  const auto info = known ? *seen_ : gpu.inspect(first);
  if (!info.on_gpu()) {
    if (!gpu.readable_by_cpu(first)) {
      throw base::Error(base::ErrorClass::buffer,
                        "{}: argument {} ({}) is neither memory of this process nor live GPU memory; was it freed "
                        "before the call, or "
                        "does it belong to a context that was destroyed?",
                        call_, name, static_cast<const void*>(first));
    }
    if (base == nullptr || layout.true_lb() != 0) check_all_on_host(name, base, layout, count);
    return false;
  }
  // Mostly it lies in the allocation that is known already; else neighbouring mappings are walked.
  const bool within = reinterpret_cast<std::uintptr_t>(first) + length <= info.base + info.size;
  if (const std::size_t there = within ? length : gpu.contiguous_from(first, length); there < length) {
    throw base::Error(base::ErrorClass::buffer,
                      "{}: argument {} spans {} bytes from {}, but its GPU allocation ends after {}; check count and "
                      "datatype against what was allocated; where its parts lie in several allocations, pass each by a "
                      "call of its own",
                      call_, name, length, static_cast<const void*>(first), there);
  }
  place = copier_.place(info);
  if (seen != nullptr) *seen = info;
  return true;
}

std::unique_ptr<Argument> ArgumentBuilder::single(const char* name, const void* base, const char* count_name,
                                                  MPI_Count count, MPI_Count blocks, MPI_Datatype type,
                                                  Direction direction, lane::Form form, bool received,
                                                  bool cuttable) const {
  auto argument = std::make_unique<Argument>();
  argument->address_ = writable(base);
  argument->count_ = count;
  argument->type_ = type;
  if (direction == Direction::none || base == mpi::in_place()) return argument;
  if (count < 0)
    throw base::Error(base::ErrorClass::count, "{}: argument {} is {}; a count is never negative", call_, count_name,
                      count);
  argument->received_ = received;
  argument->direction_ = direction;
  if (count == 0 || blocks == 0) return argument;

  const auto layout = layout_of(name, type);
  MPI_Count all = 0;
  if (__builtin_mul_overflow(count, blocks, &all)) {
    throw base::Error(base::ErrorClass::count, "{}: argument {} is {}, for each of {} peers: more than 64 bits count",
                      call_, count_name, count, blocks);
  }
  if (!locate(name, base, *layout, all, argument->place_, &argument->seen_)) return argument;

  const std::size_t bytes = layout->packed_size(all);
  Argument::Part part{static_cast<const std::byte*>(base), layout, all, 0, bytes};
  argument->bytes_ = bytes;
  argument->form_ = form;
  const auto span = layout->span(all);
  if (form == lane::Form::mirror || layout->dense() ||
      (!cuttable && mirrors(static_cast<std::size_t>(span.end - span.begin), bytes))) {
    argument->form_ = lane::Form::mirror;
    argument->host_bytes_ = static_cast<std::size_t>(span.end - span.begin);
    argument->first_ = static_cast<std::ptrdiff_t>(-span.begin);
    part.offset = argument->first_;
  } else {
    argument->host_bytes_ = bytes;
    argument->type_ = layouts_.packed_twin(type);
  }
  argument->parts_.push_back(std::move(part));
  return argument;
}

std::unique_ptr<Argument> ArgumentBuilder::blocks(const char* name, const void* base, BlockList list, bool in_bytes,
                                                  MPI_Datatype type, Direction direction) const {
  auto argument = std::make_unique<Argument>();
  argument->address_ = writable(base);
  argument->type_ = type;
  argument->direction_ = direction;
  // Open MPI refuses arrays at null, even of no elements (a rank without neighbours).
  argument->counts_.reserve(list.size() + 1);
  argument->displacements_.reserve(list.size() + 1);
  argument->types_.reserve(list.size() + 1);
  for (const Block& block : list) {
    argument->counts_.push_back(block.count);
    argument->displacements_.push_back(block.displacement);
    if (in_bytes) argument->types_.push_back(block.type);
  }
  if (direction == Direction::none || base == mpi::in_place()) return argument;

  // One part a block that holds anything. All blocks are in one buffer, so all are in GPU memory or none is.
  std::shared_ptr<const layout::Layout> layout;
  std::vector<std::size_t> holds;  // the block of each part
  layout::Span whole{};            // of all blocks, from the buffer's address
  bool any_on_host = false;
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
    lane::Place place;
    const bool on_gpu = locate(name, byte_at(base, displacement), *layout, block.count, place);
    const bool first = argument->parts_.empty();
    if (on_gpu ? any_on_host : !first) throw several_memories(name);
    if (!on_gpu) {
      any_on_host = true;
      continue;
    }
    if (first) argument->place_ = place;
    argument->place_.settled = argument->place_.settled && place.settled;
    const std::size_t bytes = layout->packed_size(block.count);
    const auto span = layout->span(block.count);
    whole.begin = first ? displacement + span.begin : std::min(whole.begin, displacement + span.begin);
    whole.end = first ? displacement + span.end : std::max(whole.end, displacement + span.end);
    argument->parts_.push_back({byte_at(base, displacement), layout, block.count, displacement, bytes});
    argument->bytes_ += bytes;
    holds.push_back(i);
  }
  if (argument->parts_.empty()) return argument;

  const auto length = static_cast<std::size_t>(whole.end - whole.begin);
  if (mirrors(length, argument->bytes_)) {
    argument->form_ = lane::Form::mirror;
    argument->host_bytes_ = length;
    argument->first_ = static_cast<std::ptrdiff_t>(-whole.begin);
    for (auto& part : argument->parts_) part.offset += argument->first_;
    return argument;
  }

  // Packed: blocks follow each other. Displacements are in elements of the packed type, or in bytes again.
  std::ptrdiff_t offset = 0;
  std::fill(argument->displacements_.begin(), argument->displacements_.end(), 0);  // empty blocks may point far outside
  for (std::size_t k = 0; k < holds.size(); ++k) {
    auto& part = argument->parts_[k];
    const std::size_t i = holds[k];
    part.offset = offset;
    offset += static_cast<std::ptrdiff_t>(part.bytes);
    if (in_bytes) {
      argument->displacements_[i] = part.offset;
      argument->types_[i] = layouts_.packed_twin(list[i].type);
      offset = (offset + alignment - 1) / alignment * alignment;
    } else {
      argument->displacements_[i] = part.offset / static_cast<std::ptrdiff_t>(part.layout->size());
    }
  }
  argument->host_bytes_ = static_cast<std::size_t>(offset);
  const bool same_as_packed = !in_bytes && layout->dense() && layout->true_lb() == 0;
  if (!in_bytes && !same_as_packed) argument->type_ = layouts_.packed_twin(type);
  return argument;
}

}  // namespace crosslane::interpose
