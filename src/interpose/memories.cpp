// See memories.h.
#include "interpose/memories.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace crosslane::interpose {
namespace {

bool together(const Segment& segment, const std::optional<lane::Place>& place) {
  return segment.place.has_value() == place.has_value() && (!place || segment.place->context == place->context);
}

}  // namespace

bool may_be_apart(const void* base, const layout::Layout& layout, MPI_Count count, std::size_t allocation) {
  if (base == nullptr) return true;
  if (count != 1) return false;
  const auto shape = layout.as_strided(1);
  if (!shape) return true;
  for (unsigned d = 0; d < shape->dimensions; ++d)
    if (static_cast<std::size_t>(std::abs(shape->dimension[d].stride)) >= allocation) return true;
  return false;
}

bool reaches_gpu(lane::Copier& copier, const void* base, const layout::Layout& layout, MPI_Count count) {
  if (base != nullptr && layout.true_lb() == 0) return false;
  constexpr std::size_t members = 32;
  std::array<std::int64_t, members + 1> bytes{};
  std::size_t found = 0;
  // A run cannot be told to be the last one: of many short ones the first few bytes have enough.
  for (std::size_t end = std::min<std::size_t>(layout.size(), 256);
       found<members; end = end> layout.size() / 16 ? layout.size() : 16 * end) {
    found = 0;
    layout.for_each_run(1, 0, end, [&](std::int64_t offset, std::size_t) {
      if (found < members) bytes[found++] = offset;
    });
    if (end == layout.size()) break;
  }
  bytes[found++] = layout.span(count).end - 1;
  return std::any_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(found), [&](std::int64_t offset) {
    return copier.gpu().inspect(lane::byte_at(base, static_cast<std::ptrdiff_t>(offset))).on_gpu();
  });
}

std::vector<Segment> segments_of(lane::Copier& copier, const char* call, const char* argument, const void* base,
                                 const layout::Layout& layout, MPI_Count count) {
  auto& gpu = copier.gpu();
  std::vector<Segment> segments;
  gpu::PointerInfo known;
  std::optional<lane::Place> place;
  std::size_t at = 0;
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    const std::byte* const first = lane::byte_at(base, static_cast<std::ptrdiff_t>(offset));
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    if (!known.on_gpu() || address - known.base >= known.size) {
      known = gpu.inspect(first);
      place.reset();
      if (known.on_gpu()) place = copier.place(known);
    }
    if (!known.on_gpu() && !gpu::Gpu::readable_by_cpu(first)) {
      throw base::Error(
          base::ErrorClass::buffer,
          "{}: a part of argument {}, {} bytes at {}, is neither memory of this process nor live GPU memory; check "
          "the datatype's displacements; was it freed before the call?",
          call, argument, length, static_cast<const void*>(first));
    }
    if (known.on_gpu() && address + length > known.base + known.size && gpu.contiguous_from(first, length) < length) {
      throw base::Error(base::ErrorClass::buffer,
                        "{}: a part of argument {} spans {} bytes from {}, but its GPU allocation ends after {}; check "
                        "datatype against what was allocated",
                        call, argument, length, static_cast<const void*>(first), known.base + known.size - address);
    }
    if (segments.empty() || !together(segments.back(), place)) segments.push_back({at, at, place});
    if (place) segments.back().place->settled = segments.back().place->settled && place->settled;
    segments.back().end = at += length;
  });
  return segments;
}

}  // namespace crosslane::interpose
