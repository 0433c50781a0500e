// What the two sides of a transfer share (transfers.h). It must not know either.
#pragma once

#include "engine/completion.h"

#include <cstddef>

namespace crosslane::message {

/// Chunks of one transfer under way at a time: one in the copy engine, the others with MPI.
inline constexpr std::size_t window = 4;

/// Not in the coroutines: GCC 12 cannot await what takes an initializer list.
[[nodiscard]] inline engine::Completion either(const engine::Completion& one, const engine::Completion& other) {
  return engine::Completion::when_any({one, other});
}

}  // namespace crosslane::message
