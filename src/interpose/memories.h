// Which memories a buffer lies in: mostly one, but a datatype of absolute addresses (MPI 5.0, section 5.1.5), or of distances
// between allocations, may reach several. It must not know what the buffer is for.
#pragma once

#include "lane/copier.h"
#include "layout/layout.h"
#include "mpi/abi.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace crosslane::interpose {

/// What spans so many bytes may lie in several memories, though its address is in one of the host: their addresses are far apart.
inline constexpr std::size_t wide_span = std::size_t{256} << 20;

/// Bytes [begin, end) of a packed stream, in one allocation of a GPU, or in host memory.
struct Segment {
  std::size_t begin, end;
  std::optional<lane::Place> place;  ///< Nothing of the host's memory.
};

/// True if a buffer that begins in an allocation of so many bytes, which does not hold its span, may be meant so rather than run past
/// its end: it has absolute addresses, or distances that are no strides within it.
[[nodiscard]] bool may_be_apart(const void* base, const layout::Layout& layout, MPI_Count count,
                                std::size_t allocation);

/// Whether a buffer whose lowest byte is in host memory reaches GPU memory, as one with absolute addresses, or that spans much, may. Costs
/// some nanoseconds a run of such a one.
[[nodiscard]] bool reaches_gpu(lane::Copier& copier, const void* base, const layout::Layout& layout, MPI_Count count);

/// The segments of `count` elements from `base` on, in the stream's order. Costs a look at each run. Throws Error (buffer), naming
/// the argument, where a run is in no memory, or ends beyond its allocation.
[[nodiscard]] std::vector<Segment> segments_of(lane::Copier& copier, const char* call, const char* argument,
                                               const void* base, const layout::Layout& layout, MPI_Count count);

/// Copies bytes [begin, end) of the packed stream of `count` elements from `base` on, which lie at `place`, or in host memory (nothing), to
/// `host` or back: on the GPU as lane::Batch does it, in host memory, of which `host` holds the packed bytes, at once.
void fetch(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* host, const std::byte* base,
           const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form);
void deliver(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* base, const std::byte* host,
             const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form);

}  // namespace crosslane::interpose
