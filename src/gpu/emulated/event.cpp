// See event.h.
#include "gpu/emulated/event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace crosslane::gpu::emulated {
namespace {

struct Events {
  std::mutex mutex;
  std::unordered_map<CUevent, std::shared_ptr<CUevent_st>> live;
  // Interprocess events: slots in one file, freed slots are used again.
  int file = -1;
  SharedEvent* slots = nullptr;
  std::vector<int> free_slots;
};

constexpr std::size_t slot_count = 1 << 16;

Events& events() {
  static auto& instance = *new Events();
  return instance;
}

void finish(Completion& completion) {
  const std::lock_guard lock(completion.mutex);
  completion.done = true;
  completion.when = std::chrono::steady_clock::now();
  completion.reached.notify_all();
}

// Waits unless the context goes away. The recorder's stream always gets there, but the waiter's context may go first,
// which nobody notifies: so it looks now and then.
void wait(Completion& completion, const std::atomic<bool>& aborted) {
  std::unique_lock lock(completion.mutex);
  while (!completion.done && !aborted.load(std::memory_order_acquire)) {
    // The system clock: ThreadSanitizer does not know the call that waits by the steady one.
    completion.reached.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  }
}

bool all_reached(const std::vector<Point>& points) { return std::ranges::all_of(points, &Point::reached); }

bool is_done(Completion& completion) {
  const std::lock_guard lock(completion.mutex);
  return completion.done;
}

void raise_to(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < value &&
         !word.compare_exchange_weak(seen, value, std::memory_order_release, std::memory_order_relaxed)) {}
}

void record(const std::shared_ptr<CUevent_st>& event, const std::shared_ptr<Stream>& stream, bool external) {
  require(event->context == nullptr || event->context->device == stream->context.device, CUDA_ERROR_INVALID_HANDLE);
  const std::lock_guard lock(event->mutex);
  if (!external) {
    if (auto point = captured_point(*stream)) {
      event->captured = std::move(point);
      return;
    }
  }
  // A captured (external) record happens once a launch: the completion is then made when it happens.
  if (external && captured_point(*stream)) {
    submit(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [event](const Running&) {
      auto completion = std::make_shared<Completion>();
      finish(*completion);
      const std::lock_guard inner(event->mutex);
      event->points.clear();
      event->latest = std::move(completion);
      if (event->shared)
        raise_to(event->shared->done, event->shared->recorded.fetch_add(1, std::memory_order_relaxed) + 1);
    });
    return;
  }
  auto completion = std::make_shared<Completion>();
  const std::uint64_t number = event->shared ? event->shared->recorded.fetch_add(1, std::memory_order_relaxed) + 1 : 0;
  submit(
      stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [](const Running&) {}, {},
      [completion, shared = event->shared, number] {
        if (shared) raise_to(shared->done, number);
        finish(*completion);
      });
  event->captured.reset();
  event->points.clear();
  event->latest = std::move(completion);
}

// The action that waits for what `event` stands for now, or nothing if there is nothing to wait for.
Action waiting_for(CUevent_st& event) {
  if (event.shared) {
    const std::uint64_t number = event.shared->recorded.load(std::memory_order_acquire);
    if (event.shared->done.load(std::memory_order_acquire) >= number) return {};
    return [shared = event.shared, number](const Running& running) {
      for (Backoff backoff; shared->done.load(std::memory_order_acquire) < number && !running.aborted.load();)
        backoff.pause();
    };
  }
  if (!event.points.empty()) {
    if (all_reached(event.points)) return {};
    return [points = event.points](const Running& running) {
      for (Backoff backoff; !all_reached(points) && !running.aborted.load(std::memory_order_acquire);) backoff.pause();
    };
  }
  if (!event.latest || is_done(*event.latest)) return {};
  return [completion = event.latest](const Running& running) { wait(*completion, running.aborted); };
}

bool query(CUevent_st& event) {
  const std::lock_guard lock(event.mutex);
  require(!event.captured || event.captured->capture->ended, CUDA_ERROR_CAPTURED_EVENT);
  if (event.shared)
    return event.shared->done.load(std::memory_order_acquire) >= event.shared->recorded.load(std::memory_order_acquire);
  if (!event.points.empty()) return all_reached(event.points);
  return !event.latest || is_done(*event.latest);
}

}  // namespace

std::shared_ptr<CUevent_st> resolve(CUevent handle) {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(handle);
  require(found != all.live.end(), CUDA_ERROR_INVALID_HANDLE);
  return found->second;
}

CUevent publish(std::shared_ptr<CUevent_st> event) {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  CUevent handle = event.get();
  all.live.emplace(handle, std::move(event));
  return handle;
}

std::shared_ptr<SharedEvent> SharedEvents::make(int& slot) {
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  if (all.file < 0) {
    const int file = memfd_create("crosslane-emulated-events", MFD_CLOEXEC);
    require(file >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    constexpr std::size_t bytes = slot_count * sizeof(SharedEvent);
    void* memory =
        ftruncate(file, bytes) == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
      close(file);
      throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    all.file = file;
    all.slots = static_cast<SharedEvent*>(memory);
    for (int free_slot = slot_count - 1; free_slot >= 0; --free_slot) all.free_slots.push_back(free_slot);
  }
  require(!all.free_slots.empty(), CUDA_ERROR_OUT_OF_MEMORY);
  slot = all.free_slots.back();
  all.free_slots.pop_back();
  // The slot is not used again while work holds it; its counters go on, a record in flight elsewhere stays harmless.
  return {all.slots + slot, [slot](SharedEvent*) {
            Events& inner = events();
            const std::lock_guard inner_lock(inner.mutex);
            inner.free_slots.push_back(slot);
          }};
}

int SharedEvents::file() { return events().file; }

}  // namespace crosslane::gpu::emulated

using namespace crosslane::gpu::emulated;

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return enter("cuEventCreate", plain, [&] {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    require(handle != nullptr && (flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
    require((flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0, CUDA_ERROR_INVALID_VALUE);
    auto event = std::make_shared<CUevent_st>();
    event->context = &current();
    event->flags = flags;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) event->shared = SharedEvents::make(event->shared_slot);
    *handle = publish(std::move(event));
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return enter("cuEventDestroy_v2", plain, [&] {
    std::shared_ptr<CUevent_st> event;  // goes after the lock: its slot takes the same one
    Events& all = events();
    const std::lock_guard lock(all.mutex);
    const auto found = all.live.find(handle);
    require(found != all.live.end(), CUDA_ERROR_INVALID_HANDLE);
    event = std::move(found->second);
    all.live.erase(found);
    if (event->context != nullptr && event->context->aborted->load(std::memory_order_acquire))
      die_of_stale("cuEventDestroy");
    // Unlocked in reverse order of construction: the guard first, the event last.
  });
}

CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  return enter("cuEventRecordWithFlags", plain, [&] {
    require((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) == 0, CUDA_ERROR_INVALID_VALUE);
    record(resolve(handle), resolve(stream), flags == CU_EVENT_RECORD_EXTERNAL);
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return enter("cuEventRecord", plain, [&] { record(resolve(handle), resolve(stream), false); });
}

// Refuses captures of any mode, as seen on an H200 (driver 580), also from a thread in relaxed mode.
CUresult cuCtxRecordEvent(CUcontext context, CUevent handle) {
  return enter("cuCtxRecordEvent", plain, [&] {
    CUctx_st& recorded = checked(context);
    const auto event = resolve(handle);
    require(event->context == &recorded && !event->shared, CUDA_ERROR_INVALID_HANDLE);
    refuse_captured(recorded);
    auto points = all_enqueued(recorded);
    const std::lock_guard lock(event->mutex);
    event->captured.reset();
    event->latest.reset();
    event->points = std::move(points);
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  return enter("cuStreamWaitEvent", plain, [&] {
    require((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) == 0, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    const auto event = resolve(event_handle);
    const std::lock_guard lock(event->mutex);
    if (event->captured && !event->captured->capture->ended) {
      join(stream, *event->captured);
      return;
    }
    if (captured_point(*stream)) {
      require(flags == CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
      submit(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, [event](const Running& running) {
        Action action;
        {
          const std::lock_guard inner(event->mutex);
          action = waiting_for(*event);
        }
        if (action) action(running);
      });
      return;
    }
    if (Action action = waiting_for(*event)) submit(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, std::move(action));
  });
}

CUresult cuEventQuery(CUevent handle) {
  return enter("cuEventQuery", unsafe_in_capture,
               [&]() -> CUresult { return query(*resolve(handle)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; });
}

CUresult cuEventSynchronize(CUevent handle) {
  return enter("cuEventSynchronize", unsafe_in_capture, [&] {
    const auto event = resolve(handle);
    Action action;
    {
      const std::lock_guard lock(event->mutex);
      require(!event->captured || event->captured->capture->ended, CUDA_ERROR_CAPTURED_EVENT);
      action = waiting_for(*event);
    }
    if (action) action(Running{*event->context, *event->context->aborted});
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return enter("cuEventElapsedTime", plain, [&] {
    require(milliseconds != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto start = resolve(start_handle), end = resolve(end_handle);
    std::shared_ptr<Completion> first, last;
    for (const auto& [event, completion] : {std::pair{start, &first}, std::pair{end, &last}}) {
      const std::lock_guard lock(event->mutex);
      require((event->flags & CU_EVENT_DISABLE_TIMING) == 0 && event->latest, CUDA_ERROR_INVALID_HANDLE);
      *completion = event->latest;
    }
    require(is_done(*first) && is_done(*last), CUDA_ERROR_NOT_READY);
    *milliseconds = std::chrono::duration<float, std::milli>(last->when - first->when).count();
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

}  // extern "C"
