// Events: order between streams, and whether a point in one is reached. This file must not know what is ordered, nor wait.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"
#include "gpu/stream.h"

#include <mutex>
#include <vector>

namespace crosslane::gpu {

/// An event of the context that is current at construction. Move-only.
class Event {
 public:
  enum class Use { order, timing, across_processes };
  explicit Event(const Driver& driver, Use use = Use::order);
  /// Opens an event that another process exported.
  Event(const Driver& driver, const CUipcEventHandle& handle);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void record(StreamView stream);
  /// All that its context has under way on any stream. False, with nothing recorded, where the driver does not tell: before CUDA 12.5, and while a
  /// stream of the context is captured, which spoils the capture.
  [[nodiscard]] bool record_context();
  /// What is enqueued on `stream` from here on waits for the latest record; nothing if there was none.
  void make_wait(StreamView stream) const;
  [[nodiscard]] bool done() const;
  [[nodiscard]] CUipcEventHandle export_handle() const;
  [[nodiscard]] CUevent handle() const noexcept { return event_; }

 private:
  const Driver* driver_;
  Life life_;
  CUevent event_ = nullptr;
};

/// Milliseconds from `start` to `end`, both created for timing and completed.
[[nodiscard]] float milliseconds_between(const Driver& driver, const Event& start, const Event& end);

/// Events of one context, kept for reuse: creating one costs microseconds. Thread-safe;
/// must outlive what it lends.
class EventPool {
 public:
  explicit EventPool(const Driver& driver) : driver_(driver) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// A lent event; goes back on destruction, when the work that it marks may still run: a record is then just newer.
  class Lent {
   public:
    Lent(EventPool& pool, Event event) : pool_(&pool), event_(std::move(event)) {}
    Lent(Lent&& other) noexcept;
    Lent& operator=(Lent&& other) noexcept;
    ~Lent();
    [[nodiscard]] Event& operator*() noexcept { return event_; }
    [[nodiscard]] Event* operator->() noexcept { return &event_; }

   private:
    EventPool* pool_;
    Event event_;
  };

  /// The context of the pool must be current.
  [[nodiscard]] Lent lend();

 private:
  const Driver& driver_;
  std::mutex mutex_;
  std::vector<Event> idle_;
};

/// What is enqueued on `later` from here on waits for all that is on `earlier` now.
void order_after(EventPool& pool, StreamView earlier, StreamView later);

}  // namespace crosslane::gpu
