// Which memories a buffer lies in: mostly one, but a datatype of absolute addresses (MPI 5.0, section 5.1.5), or of distances
// between allocations, may reach several. It must not know what the buffer is for, nor who copies it.
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

/// Where a buffer lies: all of it in one allocation of a GPU (`place`), in several memories, one of a GPU at least (`segments`), or in the host's.
struct Located {
  gpu::PointerInfo seen{};  ///< What the driver says of its lowest byte.
  std::optional<lane::Place> place{};
  std::vector<Segment> segments{};

  /// Of the first byte that is on a GPU, if any is.
  [[nodiscard]] std::optional<lane::Place> first_place() const;
  /// The same as segments of a stream of so many bytes, whatever it lies in.
  [[nodiscard]] std::vector<Segment> in_segments(std::size_t bytes) const;
};
/// Whether it may lie in several: not at all; if it looks as though that were meant, rather than a mistake; or whatever it looks like.
enum class Apart { never, if_meant, always };
/// Of `count` elements from `base` on, none of which is in no memory; `known` (may be null) is what the driver said in this very call of an
/// allocation that it may begin in. Throws Error (buffer), naming the argument, where the memory is not all there, or apart and must not be.
[[nodiscard]] Located locate(lane::Copier& copier, const char* call, const char* argument, const void* base,
                             const layout::Layout& layout, MPI_Count count, Apart apart,
                             const gpu::PointerInfo* known = nullptr);

/// Copies bytes [begin, end) of the packed stream of `count` elements from `base` on, which lie at `place`, or in host memory (nothing), to
/// `host` or back: on the GPU as lane::Batch does it, in host memory, of which `host` holds the packed bytes, at once.
void fetch(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* host, const std::byte* base,
           const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form);
void deliver(lane::Batch& batch, const std::optional<lane::Place>& place, std::byte* base, const std::byte* host,
             const layout::Layout& layout, MPI_Count count, std::size_t begin, std::size_t end, lane::Form form);

}  // namespace crosslane::interpose
