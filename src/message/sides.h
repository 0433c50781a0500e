// What the two sides of a transfer share (transfers.h). It must not know either.
#pragma once

#include "base/clock.h"
#include "engine/completion.h"
#include "engine/task.h"
#include "engine/watch.h"
#include "lane/copier.h"
#include "message/buffer.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>

namespace crosslane::message {

/// Chunks of one transfer under way at a time: one in the copy engine, the others with MPI.
inline constexpr std::size_t chunk_window = 4;

/// How often who waits for another rank's part asks whether that rank lives, and whether the GPU works: calls of the system and of the driver.
inline constexpr base::Duration between_questions = std::chrono::seconds{1};

/// Not in the coroutines: GCC 12 cannot await what takes an initializer list.
[[nodiscard]] inline engine::Completion either(const engine::Completion& one, const engine::Completion& other) {
  return engine::Completion::when_any({one, other});
}

/// Returns when a copy of the batch is done; throws where the GPU has failed.
engine::Task<> written(engine::Completion copied, const lane::Batch& batch);
/// The same where the batch is gone.
engine::Task<> written(engine::Completion copied, lane::Copier& copier, lane::Place place);
/// After a failure, of what was enqueued before. The batch would wait for that by turns of the engine when it ends: not on the helper thread.
engine::Task<> ended(lane::Batch& batch, const engine::Watch& watch);

/// A packed copy in host memory of what comes after `begin` of a buffer in GPU memory; its address is as if all were there. What is referred to
/// outlives it.
engine::Task<> to_host(lane::Copier& copier, const Buffer& buffer, std::size_t begin, std::shared_ptr<Buffer> copy,
                       const engine::Watch& watch);

/// Bytes [begin, end) of a packed payload to where they belong in a buffer on the host.
inline void unpack(const Buffer& buffer, const std::byte* packed, std::size_t begin, std::size_t end) {
  if (buffer.layout->dense()) {
    std::memcpy(lane::byte_at(buffer.address, buffer.layout->true_lb()) + begin, packed, end - begin);
  } else {
    buffer.layout->unpack(buffer.address, packed, buffer.count, begin, end);
  }
}

}  // namespace crosslane::message
