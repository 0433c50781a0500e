// Earlier: what the application had enqueued on its default streams at one moment, and whether that is over. It must not know what has to come behind it.
#pragma once

#include "gpu/event.h"
#include "gpu/stream.h"

#include <atomic>
#include <memory>
#include <vector>

namespace crosslane::lane {

/// Thread-safe.
class Earlier {
 public:
  /// As of now, of the current context: its legacy default stream, with the blocking streams that this synchronises with, and this thread's own. Null
  /// where these have nothing under way. While a blocking stream is captured the legacy one must not be touched, and nothing can have been
  /// enqueued there.
  [[nodiscard]] static std::shared_ptr<const Earlier> now(const gpu::Driver& driver);

  /// All of it is done, or the GPU has failed, which who copies is told. Costs a call of the driver for each stream while it is not.
  [[nodiscard]] bool over() const noexcept;
  /// What is enqueued on `stream` from here on comes behind it, and keeps others from going on that share a hardware queue with that stream: MPS gives
  /// a process two of these (one H200: of sixteen streams about half stood still; all of them behind two that waited). Who can waits for over().
  void make_wait(gpu::StreamView stream) const;

 private:
  std::vector<gpu::Event> events_;
  mutable std::atomic<bool> over_{false};
};

}  // namespace crosslane::lane
