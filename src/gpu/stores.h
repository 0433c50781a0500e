// Stores: short copies from host memory to a GPU that are commands of the stream itself (CUDA driver API, cuStreamBatchMemOp), all in one
// call with the word that tells when they are done: no copy engine has to start. It must not know what they are for.
#pragma once

#include "gpu/stream.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::gpu {

/// The command of a stream that sets the 8 bytes at `address`.
[[nodiscard]] CUstreamBatchMemOpParams store_64(CUdeviceptr address, std::uint64_t value) noexcept;

/// Those that are to be enqueued together. For one thread at a time.
class Stores {
 public:
  /// What add() takes at most. Each word costs the stream some 0.8 us on an H200, a copy engine's start 3.
  static constexpr std::size_t most_bytes = 16, most_words = 2;

  /// A copy of whole words of 4 bytes, or 8, to device memory, not managed. False where it is none such, or no more go together: then
  /// nothing was added. `source` must stay until the stream is past the copy.
  [[nodiscard]] bool add(void* destination, const std::byte* source, std::size_t bytes);
  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }
  /// Forgets them.
  void clear() noexcept {
    copies_.clear();
    words_.clear();
  }

  /// Enqueues all of them, in order, and forgets them; and in the same call, where there is a `word`, that it becomes `value`. False
  /// where that was not enqueued: there are none, or the GPU refuses; then copies were made.
  bool enqueue(StreamView stream, CUdeviceptr word = 0, std::uint64_t value = 0);

 private:
  struct Copy {
    void* destination;
    const std::byte* source;
    std::size_t bytes;
  };
  std::vector<Copy> copies_;
  std::vector<CUstreamBatchMemOpParams> words_;
};

}  // namespace crosslane::gpu
