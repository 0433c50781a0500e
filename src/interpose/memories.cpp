// See memories.h.
#include "interpose/memories.h"

#include "base/error.h"
#include "gpu/region.h"
#include "layout/reach.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace crosslane::interpose {

namespace {

// True if a buffer that begins in an allocation of so many bytes, which does not hold its span, may be meant so rather than run past
// its end: it has absolute addresses, or distances that are no strides within it.
bool may_be_apart(const void* base, const layout::Layout& layout, MPI_Count count, std::size_t allocation) {
  if (base == nullptr) return true;
  // More than there is of one array.
  if (count > 1 && static_cast<std::size_t>(std::abs(layout.extent())) > allocation) return true;
  const auto shape = layout.as_strided(1);
  if (!shape) {
    const auto span = layout.span(1);
    return count == 1 || static_cast<std::size_t>(span.end - span.begin) > allocation;
  }
  for (unsigned d = 0; d < shape->dimensions; ++d)
    if (static_cast<std::size_t>(std::abs(shape->dimension[d].stride)) >= allocation) return true;
  return false;
}

// Whether a buffer whose lowest byte is in host memory reaches GPU memory, as one with absolute addresses, or that spans much, may. Costs
// some nanoseconds a run of such a one.
bool reaches_gpu(lane::Copier& copier, const void* base, const layout::Layout& layout, MPI_Count count) {
  const auto span = layout.span(count);
  const auto on_gpu = [&](const std::byte* byte) { return copier.gpu().inspect(byte).on_gpu(); };
  const bool wide = base == nullptr || static_cast<std::size_t>(span.end - span.begin) >= wide_span;
  return wide ? layout::any_run(on_gpu, base, layout, count) : layout::reaches(on_gpu, base, layout, nullptr, count);
}

// In the stream's order. Costs a look at each run. Throws Error (buffer), naming the argument, where a run is in no memory, or ends beyond its
// allocation.
std::vector<Segment> segments_of(lane::Copier& copier, const char* call, const char* argument, const void* base,
                                 const layout::Layout& layout, MPI_Count count) {
  auto& gpu = copier.gpu();
  std::vector<Segment> segments;
  gpu::PointerInfo known;
  std::uintptr_t host = 0;  // the region of the last run in host memory
  std::size_t at = 0;
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    const std::byte* const first = lane::byte_at(base, static_cast<std::ptrdiff_t>(offset));
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    const bool before =
        !segments.empty() && (known.on_gpu() ? address - known.base < known.size : gpu::region_of(first) == host);
    if (!before) known = gpu.inspect(first);
    if (!known.on_gpu()) host = gpu::region_of(first);
    if (!before && !known.on_gpu() && !gpu::Gpu::readable_by_cpu(first)) {
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
    // A copy of several rows wants them in one allocation.
    const bool one_more =
        segments.empty() || known.on_gpu() != segments.back().place.has_value() || (known.on_gpu() && !before);
    if (one_more) segments.push_back({at, at, known.on_gpu() ? std::optional(copier.place(known)) : std::nullopt});
    segments.back().end = at += length;
  });
  return segments;
}

// All in host memory: nothing.
std::vector<Segment> divided(lane::Copier& copier, const char* call, const char* argument, const void* base,
                             const layout::Layout& layout, MPI_Count count, Apart apart) {
  if (apart == Apart::never)
    throw base::Error(
        base::ErrorClass::buffer,
        "{}: parts of argument {} lie in several memories, one of a GPU; this procedure takes a buffer in one memory, "
        "so pass each by a call of its own",
        call, argument);
  auto segments = segments_of(copier, call, argument, base, layout, count);
  if (std::ranges::none_of(segments, [](const Segment& each) { return each.place.has_value(); })) segments.clear();
  return segments;
}

}  // namespace

std::optional<lane::Place> Located::first_place() const {
  if (segments.empty()) return place;
  const auto found = std::ranges::find_if(segments, [](const Segment& each) { return each.place.has_value(); });
  return found->place;
}

std::vector<Segment> Located::in_segments(std::size_t bytes) const {
  return segments.empty() ? std::vector<Segment>{{0, bytes, place}} : segments;
}

Located locate(lane::Copier& copier, const char* call, const char* argument, const void* base,
               const layout::Layout& layout, MPI_Count count, Apart apart, const gpu::PointerInfo* known) {
  Located located;
  if (count == 0 || layout.size() == 0) return located;
  const auto span = layout.span(count);
  const std::byte* const first = lane::byte_at(base, static_cast<std::ptrdiff_t>(span.begin));
  const auto length = static_cast<std::size_t>(span.end - span.begin);
  auto& gpu = copier.gpu();
  const bool is_known = known != nullptr && reinterpret_cast<std::uintptr_t>(first) - known->base < known->size;
  located.seen = is_known ? *known : gpu.inspect(first);
  if (!located.seen.on_gpu()) {
    if (!gpu::Gpu::readable_by_cpu(first)) {
      throw base::Error(base::ErrorClass::buffer,
                        "{}: argument {} ({}) is neither memory of this process nor live GPU memory; was it freed "
                        "before the call, or does it belong to a context that was destroyed?",
                        call, argument, static_cast<const void*>(first));
    }
    if (apart == Apart::always || reaches_gpu(copier, base, layout, count))
      located.segments = divided(copier, call, argument, base, layout, count, apart);
    return located;
  }
  // Mostly it lies in the allocation that is known already; else neighbouring mappings are walked.
  if (const std::size_t there = located.seen.holds(first, length) ? length : gpu.contiguous_from(first, length);
      there < length) {
    const bool is_meant =
        apart == Apart::always || (apart == Apart::if_meant && may_be_apart(base, layout, count, located.seen.size));
    if (!is_meant)
      throw base::Error(base::ErrorClass::buffer,
                        "{}: argument {} spans {} bytes from {}, but its GPU allocation ends after {}; check count and "
                        "datatype against what was allocated",
                        call, argument, length, static_cast<const void*>(first), there);
    located.segments = divided(copier, call, argument, base, layout, count, apart);
    return located;
  }
  located.place = copier.place(located.seen);
  return located;
}

void fetch(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* host, const std::byte* base,
           const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form) {
  if (place)
    batch.to_host(*place, host, base, layout, count, begin, end, form);
  else
    layout.pack(host, base, count, begin, end);
}

void deliver(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* base, const std::byte* host,
             const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form) {
  if (place)
    batch.to_gpu(*place, base, host, layout, count, begin, end, form);
  else
    layout.unpack(base, host, count, begin, end);
}

}  // namespace crosslane::interpose
