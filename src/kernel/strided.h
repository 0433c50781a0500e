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

/// Displacements in memory that the GPU reads, in place of dimension 0's stride: entry i is `displacements[i] << shift`
/// bytes from where the dimension starts. Numbers of 32 bits, or of 64 where it is wide.
struct Table {
  const void* displacements = nullptr;
  std::uint32_t shift = 0;
  bool wide = false;
};

/// One run of an irregular list (TYPES, section 3.2: a work unit, which is made on the CPU): where it lies and how many
/// bytes are packed before it, both in units of 2^shift bytes. It ends where the next one's packed bytes begin, so that
/// a list has one entry more than runs.
template <class Number>
struct UnitOf {
  Number offset, packed;
};
using Unit = UnitOf<std::uint32_t>;
using WideUnit = UnitOf<std::uint64_t>;

/// Longer runs are cut into units of at most this many bytes, so that a few of them occupy many threads.
inline constexpr std::size_t unit_limit = 4096;

}  // namespace crosslane::kernel
