// CUDA graphs by stream capture: what a stream would do, kept and launched again.
// This file must not know what is captured.
#pragma once

#include "gpu/driver.h"
#include "gpu/stream.h"

namespace crosslane::gpu {

/// A graph that can be launched any number of times, one launch at a time. Move-only.
class GraphExec {
 public:
  GraphExec(GraphExec&& other) noexcept;
  GraphExec& operator=(GraphExec&& other) noexcept;
  ~GraphExec();

  void launch(StreamView stream) const;
  /// Does what a first launch would do in addition, ahead of it.
  void upload(StreamView stream) const;

 private:
  friend class Capture;
  GraphExec(const Driver& driver, CUgraphExec exec) noexcept : driver_(&driver), exec_(exec) {}
  const Driver* driver_;
  CUgraphExec exec_ = nullptr;
};

/// A capture that runs: what is enqueued on the stream from construction on (and on streams that wait for it through
/// events) is recorded instead of run. Neither copied nor moved. Destroyed before end(), it discards what was captured.
class Capture {
 public:
  /// Mode: thread_local checks only this thread's unsafe calls, the library's choice since other threads are not ours.
  explicit Capture(StreamView stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Ends it. Throws Error where an unsafe call invalidated the capture or another stream was left unjoined.
  [[nodiscard]] GraphExec end();

 private:
  StreamView stream_;
  bool running_ = true;
};

}  // namespace crosslane::gpu
