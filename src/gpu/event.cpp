// See event.h.
#include "gpu/event.h"

#include "gpu/context.h"

#include <utility>

namespace crosslane::gpu {

Event::Event(const Driver& driver, Use use) : driver_(&driver), life_(driver) {
  const unsigned flags = use == Use::timing             ? static_cast<unsigned>(CU_EVENT_DEFAULT)
                         : use == Use::across_processes ? CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS
                                                        : static_cast<unsigned>(CU_EVENT_DISABLE_TIMING);
  check(driver, driver.event_create(&event_, flags), "cuEventCreate");
}

Event::Event(const Driver& driver, const CUipcEventHandle& handle) : driver_(&driver), life_(driver) {
  const OutsideCaptures outside(driver);
  check(driver, driver.ipc_open_event_handle(&event_, handle), "cuIpcOpenEventHandle");
}

Event::Event(Event&& other) noexcept
    : driver_(other.driver_), life_(other.life_), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(life_, other.life_);
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (event_ != nullptr && !life_.over()) driver_->event_destroy(event_);
}

void Event::record(StreamView stream) {
  check(*driver_, driver_->event_record(event_, stream.handle()), "cuEventRecord");
}

bool Event::record_context() {
  if (driver_->ctx_record_event == nullptr) return false;
  const OutsideCaptures outside(*driver_);
  const CUresult result = driver_->ctx_record_event(life_.context(), event_);
  if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) return false;
  check(*driver_, result, "cuCtxRecordEvent");
  return true;
}

void Event::make_wait(StreamView stream) const {
  check(*driver_, driver_->stream_wait_event(stream.handle(), event_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
}

bool Event::done() const {
  const OutsideCaptures outside(*driver_);
  const CUresult result = driver_->event_query(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(*driver_, result, "cuEventQuery");
  return true;
}

CUipcEventHandle Event::export_handle() const {
  CUipcEventHandle handle{};
  const OutsideCaptures outside(*driver_);
  check(*driver_, driver_->ipc_get_event_handle(&handle, event_), "cuIpcGetEventHandle");
  return handle;
}

float milliseconds_between(const Driver& driver, const Event& start, const Event& end) {
  float milliseconds = 0;
  check(driver, driver.event_elapsed_time(&milliseconds, start.handle(), end.handle()), "cuEventElapsedTime");
  return milliseconds;
}

EventPool::Lent::Lent(Lent&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), event_(std::move(other.event_)) {}

EventPool::Lent& EventPool::Lent::operator=(Lent&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(event_, other.event_);
  return *this;
}

EventPool::Lent::~Lent() {
  if (pool_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  try {
    pool_->idle_.push_back(std::move(event_));
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory for the list, the event is destroyed instead of kept
  }
}

EventPool::Lent EventPool::lend() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Event event = std::move(idle_.back());
      idle_.pop_back();
      return {*this, std::move(event)};
    }
  }
  return {*this, Event(driver_)};
}

void order_after(EventPool& pool, StreamView earlier, StreamView later) {
  auto event = pool.lend();
  event->record(earlier);
  event->make_wait(later);
}

}  // namespace crosslane::gpu
