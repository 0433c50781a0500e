// What is drawn of short messages: their lengths, layouts and buffers. It must not know how they are sent and received.
#pragma once

#include "point_to_point/message.h"
#include "point_to_point/short/ring.h"

#include <cstddef>

namespace crosslane::tests {

// In bytes.
inline constexpr std::size_t least_token = 8, longest_token = 254;  ///< Between them a token may stand for a payload.
inline constexpr std::size_t longest = 300;

/// A message's bytes.
[[nodiscard]] std::size_t draw_length(const Ring& ring, Random& random);

/// With `bytes`, MPI_BYTE without gaps on both sides; the receiver may have room for more.
[[nodiscard]] Message draw_message(const Ring& ring, Random& random, int from, int to, int tag, bool bytes);

/// A layout of bytes that lie apart.
[[nodiscard]] Layout draw_gaps(Ring& ring);

/// Memory of any kind for so many elements, now and then described by addresses.
[[nodiscard]] TypedBuffer draw_buffer(Ring& ring, Layout layout, int count);

/// So many elements of MPI_BYTE, in memory of any kind or of this one.
[[nodiscard]] TypedBuffer byte_buffer(Ring& ring, std::size_t bytes);
[[nodiscard]] TypedBuffer byte_buffer(Ring& ring, std::size_t bytes, MemoryKind kind);

}  // namespace crosslane::tests
