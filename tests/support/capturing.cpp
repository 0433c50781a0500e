// See capturing.h.
#include "support/capturing.h"

#include "support/memory.h"

namespace crosslane::tests {

Capturing::Capturing(const Device& device) : thread_([this, &device] { capture(device); }) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_; });
}

Capturing::~Capturing() {
  if (thread_.joinable()) static_cast<void>(end());
}

bool Capturing::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  return whole_;
}

void Capturing::capture(const Device& device) {
  device.make_current();
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  CROSSLANE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CROSSLANE_CUDA(cuMemAlloc(&memory, 64));
  CROSSLANE_CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  {
    std::unique_lock lock(mutex_);
    begun_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ends_; });
  }
  CUgraph graph = nullptr;
  whole_ = cuMemsetD8Async(memory, 1, 64, stream) == CUDA_SUCCESS;
  whole_ = cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && whole_;
  if (graph != nullptr) CROSSLANE_CUDA(cuGraphDestroy(graph));
  CROSSLANE_CUDA(cuStreamDestroy(stream));
  CROSSLANE_CUDA(cuMemFree(memory));
}

OutsideCapture::OutsideCapture() { CROSSLANE_CUDA(cuThreadExchangeStreamCaptureMode(&mode_)); }

OutsideCapture::~OutsideCapture() { CROSSLANE_CUDA(cuThreadExchangeStreamCaptureMode(&mode_)); }

}  // namespace crosslane::tests
