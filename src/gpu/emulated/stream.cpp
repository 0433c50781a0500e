// See stream.h.
#include "gpu/emulated/stream.h"

#include "gpu/emulated/capture.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

#include <algorithm>

namespace crosslane::gpu::emulated {
namespace {

std::mutex& handles_mutex() {
  static auto& mutex = *new std::mutex();
  return mutex;
}

std::set<CUstream>& handles() {
  static auto& set = *new std::set<CUstream>();
  return set;
}

std::uint64_t next_stream_id() {
  static auto& next = *new std::atomic<std::uint64_t>(3);  // 1 and 2 are the default streams' handles
  return next.fetch_add(1, std::memory_order_relaxed);
}

// This thread's own default stream of each context. The stream outlives the thread until its work is done.
struct PerThread {
  std::vector<std::pair<CUcontext, std::weak_ptr<Stream>>> streams;
};
PerThread& per_thread() {
  static thread_local PerThread mine;
  return mine;
}

std::shared_ptr<Stream> per_thread_stream(CUctx_st& context) {
  auto& streams = per_thread().streams;
  for (auto at = streams.begin(); at != streams.end(); ++at) {
    if (at->first != &context) continue;
    if (auto stream = at->second.lock(); stream && &stream->context == &context) return stream;
    streams.erase(at);  // of a context that was destroyed
    break;
  }
  auto stream = std::make_shared<Stream>(context, Stream::Kind::per_thread, 0);
  const std::lock_guard lock(context.order);
  context.streams.push_back(stream);
  streams.emplace_back(&context, stream);
  return stream;
}

}  // namespace

bool Point::reached() const { return !stream || stream->has_reached(count); }
void Point::wait() const {
  if (stream) stream->wait_for(count);
}

Stream::Stream(CUctx_st& of, Kind k, int p)
    : context(of), kind(k), priority(p), id(next_stream_id()), aborted_(of.aborted) {}
Stream::~Stream() = default;

// Threads are woken with the mutex free, so that they need not sleep again at once: with many ranks a core that was half of all switches.
std::uint64_t Stream::push(Action action, std::vector<Point> after, std::function<void()> then) {
  std::unique_lock lock(mutex_);
  require(!retired_, CUDA_ERROR_INVALID_HANDLE);
  if (!started_) {
    // The thread takes no signals: they are for the application's own. It keeps the stream alive while it runs.
    sigset_t all, before_this;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_this);
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before_this, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before_this, nullptr);
    started_ = true;
  }
  entries_.push_back({std::move(action), std::move(after), std::move(then)});
  const std::uint64_t count = ++pushed_;
  lock.unlock();
  work_ready_.notify_one();
  return count;
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_ready_.wait(lock, [&] { return !entries_.empty() || retired_; });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    for (const Point& point : entry.after) point.wait();
    // Work of a context that goes away is dropped, but counted: who waits for it must not wait for ever.
    if (!aborted_->load(std::memory_order_acquire)) {
      try {
        entry.action(Running{context, *aborted_});
      } catch (...) {
        say("an action on a stream failed for want of memory or threads; its effect is missing");
      }
    }
    const std::function<void()> then = std::move(entry.then);
    entry = Entry();  // what it holds goes before it counts as done
    lock.lock();
    ++completed_;
    if (then) then();  // also when the action was dropped: who waits for the event must not wait for ever
    lock.unlock();
    progressed_.notify_all();
    lock.lock();
  }
}

Point Stream::last() {
  const std::lock_guard lock(mutex_);
  return {shared_from_this(), pushed_};
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return completed_ == pushed_;
}

void Stream::wait_for(std::uint64_t count) {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [&] { return completed_ >= count; });
}

bool Stream::has_reached(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  return completed_ >= count;
}

void Stream::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
  work_ready_.notify_all();
}

std::shared_ptr<Stream> resolve(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return current().legacy;
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(current());
  const std::lock_guard lock(handles_mutex());
  require(handles().contains(handle), CUDA_ERROR_INVALID_HANDLE);
  return handle->stream;
}

namespace {

// Streams that were destroyed leave the list once their work is done. The context's order is locked.
void forget_destroyed(CUctx_st& context) {
  std::erase_if(context.streams, [](const auto& other) { return other.use_count() == 1 && other->idle(); });
}

}  // namespace

CUstream make_stream(CUctx_st& context, Stream::Kind kind, int priority) {
  auto handle = std::make_unique<CUstream_st>();
  handle->stream = std::make_shared<Stream>(context, kind, priority);
  {
    const std::lock_guard lock(context.order);
    forget_destroyed(context);
    context.streams.push_back(handle->stream);
  }
  const std::lock_guard lock(handles_mutex());
  handles().insert(handle.get());
  return handle.release();
}

void destroy_stream(CUstream handle) {
  require(handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD, CUDA_ERROR_INVALID_HANDLE);
  std::unique_ptr<CUstream_st> owned;
  {
    const std::lock_guard lock(handles_mutex());
    require(handles().erase(handle) == 1, CUDA_ERROR_INVALID_HANDLE);
    owned.reset(handle);
  }
  if (owned->stream->context.aborted->load(std::memory_order_acquire)) die_of_stale("cuStreamDestroy");
  forget_captured_stream(*owned->stream);
  owned->stream->retire();
  // The context keeps it while it has work, so that the legacy stream still waits for that; see submit.
}

Point submit(const std::shared_ptr<Stream>& stream, CUgraphNodeType type, Action action, std::vector<Point> after,
             std::function<void()> then) {
  if (captured(*stream, type, action)) return {};
  CUctx_st& context = stream->context;
  const std::lock_guard lock(context.order);
  if (stream->kind == Stream::Kind::legacy) {
    forget_destroyed(context);
    for (const auto& other : context.streams) {
      if (other->synchronizes_with_legacy() && !other->idle()) after.push_back(other->last());
    }
  } else if (stream->synchronizes_with_legacy() && !context.legacy->idle()) {
    after.push_back(context.legacy->last());
  }
  // As measured on an H200: a host function keeps no stream waiting that shares its queue, nor does an event behind it, but other work behind it does.
  const bool queues =
      !context.connections.empty() && type != CU_GRAPH_NODE_TYPE_HOST && type != CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  Point* const last = queues ? &context.connections[stream->id % context.connections.size()] : nullptr;
  if (last != nullptr && last->stream != nullptr && last->stream != stream) after.push_back(*last);
  const Point point{stream, stream->push(std::move(action), std::move(after), std::move(then))};
  if (last != nullptr) *last = point;
  return point;
}

bool over(Stream& stream) {
  CUctx_st& context = stream.context;
  const std::lock_guard lock(context.order);
  return stream.idle() &&
         (stream.kind != Stream::Kind::legacy || std::ranges::all_of(context.streams, [](const auto& other) {
            return !other->synchronizes_with_legacy() || other->idle();
          }));
}

std::vector<Point> all_enqueued(CUctx_st& context) {
  std::vector<Point> points;
  const std::lock_guard lock(context.order);
  points.push_back(context.legacy->last());
  for (const auto& stream : context.streams) points.push_back(stream->last());
  return points;
}

void synchronize(CUctx_st& context) {
  for (const Point& point : all_enqueued(context)) point.wait();
}

void synchronize_device(const Device& device) {
  std::vector<CUcontext> contexts;
  {
    const std::lock_guard lock(state().mutex);
    for (CUcontext context : state().contexts) {
      if (context->device == &device) contexts.push_back(context);
    }
  }
  for (CUcontext context : contexts) synchronize(*context);
}

void Backoff::pause() {
  ++count_;
  if (count_ < 64) return;
  if (count_ < 128) {
    sched_yield();
    return;
  }
  const timespec nap{0, count_ < 1024 ? 20'000 : 200'000};
  nanosleep(&nap, nullptr);
}

}  // namespace crosslane::gpu::emulated
