// See stream.h.
#include "gpu/stream.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

StreamView StreamView::of(const Driver& driver, CUstream stream) {
  if (stream == nullptr) {
    throw base::Error(base::ErrorClass::argument,
                      "stream 0 names no stream: say StreamView::legacy or StreamView::per_thread for a default one");
  }
  return {driver, stream};
}

bool StreamView::idle() const {
  const OutsideCaptures outside(*driver_);
  const CUresult result = driver_->stream_query(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(*driver_, result, "cuStreamQuery");
  return true;
}

bool StreamView::capturing() const {
  CUstreamCaptureStatus status{};
  check(*driver_, driver_->stream_is_capturing(stream_, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUcontext StreamView::context() const {
  CUcontext context = nullptr;
  check(*driver_, driver_->stream_get_ctx(stream_, &context), "cuStreamGetCtx");
  return context;
}

Stream::Stream(const Driver& driver, Priority priority) : driver_(&driver), life_(driver) {
  // The driver clamps a priority to what the GPU has; lower numbers go first.
  const int wanted = priority == Priority::high ? -100 : 0;
  check(driver, driver.stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING, wanted),
        "cuStreamCreateWithPriority");
}

Stream::Stream(Stream&& other) noexcept
    : driver_(other.driver_), life_(other.life_), stream_(std::exchange(other.stream_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(stream_, other.stream_);
  return *this;
}

Stream::~Stream() {
  if (stream_ != nullptr && !life_.over()) driver_->stream_destroy(stream_);
}

}  // namespace crosslane::gpu
