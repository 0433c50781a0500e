// See memories.h.
#include "interpose/memories.h"

#include "base/error.h"
#include "gpu/host_memory.h"

#include <cstdint>
#include <cstdlib>

namespace crosslane::interpose {

bool may_be_apart(const void* base, const layout::Layout& layout, MPI_Count count, std::size_t allocation) {
  if (base == nullptr) return true;
  const auto shape = layout.as_strided(1);
  if (!shape) {
    const auto span = layout.span(1);
    return count == 1 || static_cast<std::size_t>(span.end - span.begin) > allocation;
  }
  for (unsigned d = 0; d < shape->dimensions; ++d)
    if (static_cast<std::size_t>(std::abs(shape->dimension[d].stride)) >= allocation) return true;
  return false;
}

bool reaches_gpu(lane::Copier& copier, const void* base, const layout::Layout& layout, MPI_Count count) {
  const auto span = layout.span(count);
  const auto on_gpu = [&](std::int64_t offset) {
    return copier.gpu().inspect(lane::byte_at(base, static_cast<std::ptrdiff_t>(offset))).on_gpu();
  };
  if (base != nullptr && static_cast<std::size_t>(span.end - span.begin) < wide_span)
    return layout.true_lb() != 0 && on_gpu(span.end - 1);
  bool found = false;
  std::uintptr_t host = 0;
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    for (const std::int64_t byte : {offset, offset + static_cast<std::int64_t>(length) - 1}) {
      const std::uintptr_t region = gpu::region_of(lane::byte_at(base, static_cast<std::ptrdiff_t>(byte)));
      if (found || region == host) continue;
      found = on_gpu(byte);
      host = region;
    }
  });
  return found;
}

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
