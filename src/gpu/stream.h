// Streams: an owner for ours, and a view that calls take. Views are never built from 0, whose meaning depends on how
// the caller was compiled; the two default streams have names.
// This file must not wait for a stream: a Marker or an Event tells when it got somewhere.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"

namespace crosslane::gpu {

/// A stream that somebody else owns, with the table to call it through. Trivially copied; must not outlive either.
class StreamView {
 public:
  /// A stream that was created; throws Error (argument) for 0.
  static StreamView of(const Driver& driver, CUstream stream);
  /// The legacy default stream, which synchronises with all blocking streams of its context.
  static StreamView legacy(const Driver& driver) noexcept { return {driver, CU_STREAM_LEGACY}; }
  /// The calling thread's own default stream.
  static StreamView per_thread(const Driver& driver) noexcept { return {driver, CU_STREAM_PER_THREAD}; }

  [[nodiscard]] CUstream handle() const noexcept { return stream_; }
  [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

  /// True when all that was enqueued has completed. Throws Error where some of it failed.
  [[nodiscard]] bool idle() const;

  /// True while a graph is being captured from this stream.
  [[nodiscard]] bool capturing() const;

  /// The context that the stream belongs to.
  [[nodiscard]] CUcontext context() const;

 private:
  friend class Stream;
  StreamView(const Driver& driver, CUstream stream) noexcept : driver_(&driver), stream_(stream) {}
  const Driver* driver_;
  CUstream stream_;
};

/// A stream of ours in the context that is current at construction; never synchronises with the legacy default stream.
/// Move-only. Destroying it does not wait: what was enqueued still runs.
class Stream {
 public:
  enum class Priority { normal, high };
  explicit Stream(const Driver& driver, Priority priority = Priority::normal);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  [[nodiscard]] StreamView view() const noexcept { return {*driver_, stream_}; }
  operator StreamView() const noexcept { return view(); }  // NOLINT(google-explicit-constructor): a view of itself

 private:
  const Driver* driver_;
  Life life_;
  CUstream stream_ = nullptr;
};

}  // namespace crosslane::gpu
