// Balance: which of two GPUs is to move a payload between them. The copy engines of a GPU bring about as many bytes a second to and from other GPUs
// as a link takes one way, whichever way they go: between two H100 one process that copies both ways reaches 364 GB/s in sum, where each of two reads what
// comes to it 341 a way, writes what goes from it 361, or does half of either 352 (copies of 16 MiB). It must not know how payloads travel.
#pragma once

#include <cstddef>

namespace crosslane::message {

/// Bytes between this rank and another one that are under way, or asked for, by what moves them.
struct Balance {
  std::size_t reads = 0;    ///< Come here, read by this rank's GPU.
  std::size_t asked = 0;    ///< Come here, written by the other one's.
  std::size_t is_read = 0;  ///< Go there, read by the other one's.
  std::size_t writes = 0;   ///< Go there, written by this rank's.

  /// The other rank's GPU has more to do than this one's, so that what is to come here had better be read. Not where nothing goes there: then one
  /// link is all that is used, and a GPU fills it. Who counts last evens out what the other one began while it saw nothing: so a little more of
  /// what is written, for it takes less time, does no harm.
  [[nodiscard]] constexpr bool other_has_more() const noexcept {
    constexpr std::size_t little = 32;  // a part of all
    const std::size_t here = reads + writes, there = asked + is_read;
    return is_read + writes != 0 && there > here + (here + there) / little;
  }
};

}  // namespace crosslane::message
