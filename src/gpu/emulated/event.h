// Events. Each record makes a completion of its own, so that who waits waits for the record that was the latest when
// the wait was enqueued, whatever is recorded or destroyed later.
#pragma once

#include "gpu/emulated/capture.h"

#include <chrono>
#include <condition_variable>

namespace crosslane::gpu::emulated {

/// One record of an event.
struct Completion {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
  std::chrono::steady_clock::time_point when{};
};

/// An event that crosses processes: counters in memory that both map. A record takes the next number; done is the
/// highest number that was reached. Whoever waits waits for the number that was the latest when it asked.
struct SharedEvent {
  std::atomic<std::uint64_t> recorded, done;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace crosslane::gpu::emulated

struct CUevent_st {
  std::mutex mutex;
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<crosslane::gpu::emulated::Completion> latest;     // null until recorded
  std::optional<crosslane::gpu::emulated::CapturedPoint> captured;  // set while the latest record is in a capture
  std::vector<crosslane::gpu::emulated::Point> points;  // of all streams of a context, where that is the latest record
  std::shared_ptr<crosslane::gpu::emulated::SharedEvent> shared;  // of an interprocess event
  int shared_slot = -1;                                           // in this process's file; -1 when opened
};

namespace crosslane::gpu::emulated {

/// An event by its handle, checked.
std::shared_ptr<CUevent_st> resolve(CUevent handle);
/// Makes the handle of an event.
CUevent publish(std::shared_ptr<CUevent_st> event);

/// The memory of interprocess events of this process, and how another process opens a slot of it.
struct SharedEvents {
  static std::shared_ptr<SharedEvent> make(int& slot);
  static int file();
};

}  // namespace crosslane::gpu::emulated
