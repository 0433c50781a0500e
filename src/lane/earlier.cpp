// See earlier.h.
#include "lane/earlier.h"

#include "base/log.h"
#include "gpu/context.h"

#include <algorithm>
#include <exception>

namespace crosslane::lane {

void for_each_busy_default_stream(const gpu::Driver& driver, base::FunctionRef<void(gpu::StreamView)> f) {
  const gpu::OutsideCaptures outside(driver);
  for (const auto stream : {gpu::StreamView::legacy(driver), gpu::StreamView::per_thread(driver)}) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver.stream_is_capturing(stream.handle(), &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
      continue;
    if (driver.stream_query(stream.handle()) != CUDA_SUCCESS) f(stream);
  }
}

std::shared_ptr<const Earlier> Earlier::now(const gpu::Driver& driver) {
  std::shared_ptr<Earlier> earlier;
  for_each_busy_default_stream(driver, [&](gpu::StreamView stream) {
    if (earlier == nullptr) earlier = std::make_shared<Earlier>(driver);
    earlier->events_.emplace_back(driver).record(stream);
  });
  return earlier;
}

std::shared_ptr<const Earlier> Earlier::both(std::shared_ptr<const Earlier> one, std::shared_ptr<const Earlier> other) {
  if (one == other || other == nullptr || other->over()) return one;
  if (one == nullptr || one->over()) return other;
  return std::make_shared<Earlier>(std::move(one), std::move(other));
}

bool Earlier::over() const noexcept {
  if (over_.load(std::memory_order_acquire)) return true;
  try {
    if (!life_.over()) {
      const gpu::ContextScope scope(driver_, life_.context());
      if (!std::ranges::all_of(events_, &gpu::Event::done)) return false;
      if (!std::ranges::all_of(parts_, [](const auto& part) { return part->over(); })) return false;
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "nothing that was under way on default streams goes on: {}", error.what());
  }
  over_.store(true, std::memory_order_release);
  return true;
}

void Earlier::make_wait(gpu::StreamView stream) const {
  for (const auto& event : events_) event.make_wait(stream);
  for (const auto& part : parts_) part->make_wait(stream);
}

}  // namespace crosslane::lane
