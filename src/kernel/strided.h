// Descriptions of non-contiguous data that host code makes and copy kernels take. Plain data: nothing of GPU or MPI.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crosslane::kernel {

/// Runs of `width` bytes in a nest of loops, the first at `offset` bytes from a base; dimension 0 is the innermost.
/// Strides are bytes and may be negative.
struct Strided {
  static constexpr std::size_t limit = 6;
  struct Dimension {
    std::uint64_t count;
    std::int64_t stride;
  };
  std::int64_t offset = 0;
  std::size_t width = 0;
  std::size_t dimensions = 0;
  Dimension dimension[limit] = {};
};

/// One run of an irregular list: `length` bytes at `offset` from the base, at `packed` from the packed buffer's start
/// (TYPES, section 3.2: a DEV).
struct Piece {
  std::int64_t offset;
  std::uint64_t packed;
  std::uint64_t length;
};

/// Longer runs are cut into pieces of this many bytes, so that a few of them occupy many threads.
inline constexpr std::size_t piece_limit = 4096;

}  // namespace crosslane::kernel
