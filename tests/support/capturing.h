// A thread of the application that captures a graph all the time, in the mode that forbids other threads much: what MPI's calls do meanwhile
// must not end it. It must not know MPI or Crosslane.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace crosslane::tests {

class Device;

class Capturing {
 public:
  /// A capture has begun on that GPU.
  explicit Capturing(const Device& device);
  ~Capturing();
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  /// Ends it: false where something has spoilt it.
  [[nodiscard]] bool end();

 private:
  void capture(const Device& device);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false, ends_ = false, whole_ = false;
  std::thread thread_;
};

/// While one lives, this thread's calls are the test's own: they are not held to what a capture allows.
class OutsideCapture {
 public:
  OutsideCapture();
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace crosslane::tests
