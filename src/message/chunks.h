// What the two sides of a transfer share (transfers.h). It must not know either.
#pragma once

#include "engine/completion.h"
#include "message/transfers.h"

#include <cstddef>
#include <cstring>

namespace crosslane::message {

/// Chunks of one transfer under way at a time: one in the copy engine, the others with MPI.
inline constexpr std::size_t chunk_window = 4;

/// Not in the coroutines: GCC 12 cannot await what takes an initializer list.
[[nodiscard]] inline engine::Completion either(const engine::Completion& one, const engine::Completion& other) {
  return engine::Completion::when_any({one, other});
}

/// Bytes [begin, end) of a packed payload to where they belong in a buffer on the host.
inline void unpack(const Buffer& buffer, const std::byte* packed, std::size_t begin, std::size_t end) {
  if (buffer.layout->dense()) {
    std::memcpy(lane::byte_at(buffer.address, buffer.layout->true_lb()) + begin, packed, end - begin);
  } else {
    buffer.layout->unpack(buffer.address, packed, buffer.count, begin, end);
  }
}

}  // namespace crosslane::message
