// Earlier: what the application had enqueued on its default streams at one moment, and whether that is over. Copies from pageable memory up to 64 KiB
// return before they have arrived: on an H200 996 of 1,000 of 60,000 bytes were not seen by a copy on another stream right behind them, and all were once
// the legacy stream's query said that it had nothing under way. It must not know what has to come behind it.
#pragma once

#include "base/function_ref.h"
#include "gpu/event.h"
#include "gpu/life.h"
#include "gpu/stream.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::lane {

/// Of the current context: its legacy default stream, with the blocking streams that this synchronises with, and this thread's own, where they have
/// something under way. While a blocking stream is captured the legacy one must not be touched, and nothing can have been enqueued there.
void for_each_busy_default_stream(const gpu::Driver& driver, base::FunctionRef<void(gpu::StreamView)> f);

/// Thread-safe.
class Earlier {
 public:
  /// As of now, of these streams. Null where none of them has anything under way.
  [[nodiscard]] static std::shared_ptr<const Earlier> now(const gpu::Driver& driver);
  /// All of two, of one context; either may be null.
  [[nodiscard]] static std::shared_ptr<const Earlier> both(std::shared_ptr<const Earlier> one,
                                                           std::shared_ptr<const Earlier> other);
  explicit Earlier(const gpu::Driver& driver) : driver_(driver), life_(driver) {}
  Earlier(std::shared_ptr<const Earlier> one, std::shared_ptr<const Earlier> other)
      : driver_(one->driver_), life_(one->life_), parts_{std::move(one), std::move(other)} {}
  Earlier(const Earlier&) = delete;
  Earlier& operator=(const Earlier&) = delete;

  /// All of it is done; or the GPU has failed, or its context ended: then nothing there goes on any more. Costs a call of the driver or two while it
  /// is not.
  [[nodiscard]] bool over() const noexcept;
  /// What is enqueued on `stream` from here on comes behind it, and keeps others from going on that share a hardware queue with that stream: MPS gives
  /// a process two of these (one H200: of sixteen streams about half stood still; all of them behind two that waited). Who can waits for over().
  void make_wait(gpu::StreamView stream) const;

 private:
  const gpu::Driver& driver_;
  const gpu::Life life_;
  std::vector<gpu::Event> events_;
  std::vector<std::shared_ptr<const Earlier>> parts_;
  mutable std::atomic<bool> over_{false};
};

}  // namespace crosslane::lane
