// Streams: actions that run one after another on a thread of the stream's own, later than the call that enqueued them.
// This file must not know what an action does, nor graphs beyond "this stream is being captured".
#pragma once

#include "gpu/emulated/state.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

namespace crosslane::gpu::emulated {

struct CaptureState;

/// What an action sees while it runs.
struct Running {
  CUctx_st& context;
  const std::atomic<bool>& aborted;  // the context goes away: stop waiting
};

/// A piece of GPU work. Run once when it was enqueued, once a launch when it was captured: so it must not change.
using Action = std::function<void(const Running&)>;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind { legacy, per_thread, blocking, non_blocking };
  Stream(CUctx_st& context, Kind kind, int priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUctx_st& context;
  const Kind kind;
  const int priority;
  const std::uint64_t id;
  // Of a capture, guarded by the capture mutex (capture.h); null while none runs.
  std::shared_ptr<CaptureState> capture;
  std::vector<std::size_t> tail;  // nodes of the capture that the next one follows

  [[nodiscard]] bool synchronizes_with_legacy() const { return kind == Kind::blocking || kind == Kind::per_thread; }

  /// Enqueues; the caller holds context.order. The action waits for `after` first. `then` is called at the moment that
  /// the stream counts the action as done: who sees the one sees the other. It must not call into the stream.
  std::uint64_t push(Action action, std::vector<Point> after, std::function<void()> then);
  /// Everything enqueued so far.
  [[nodiscard]] Point last();
  [[nodiscard]] bool idle();
  void wait_for(std::uint64_t count);
  [[nodiscard]] bool has_reached(std::uint64_t count);
  /// Lets the thread end when all is done; nothing may be pushed from here on.
  void retire();

 private:
  struct Entry {
    Action action;
    std::vector<Point> after;
    std::function<void()> then;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable work_ready_, progressed_;
  std::deque<Entry> entries_;
  std::uint64_t pushed_ = 0, completed_ = 0;
  bool started_ = false, retired_ = false;
  std::shared_ptr<std::atomic<bool>> aborted_;
};

/// The stream that a handle means on this thread: 0 and CU_STREAM_LEGACY the current context's legacy stream,
/// CU_STREAM_PER_THREAD this thread's own. Throws Failure for a handle that is none.
std::shared_ptr<Stream> resolve(CUstream handle);

/// Makes a stream and its handle; destroys the handle, after which what is enqueued still runs.
CUstream make_stream(CUctx_st& context, Stream::Kind kind, int priority);
void destroy_stream(CUstream handle);

/// Enqueues GPU work in CUDA's order: a legacy stream's action follows all that blocking streams hold and theirs
/// follows its own. While the stream is captured the action becomes a node of the graph instead. Returns the point
/// at which it is done (null stream when captured). `then`: see Stream::push; not called for what is captured.
Point submit(const std::shared_ptr<Stream>& stream, CUgraphNodeType type, Action action, std::vector<Point> after = {},
             std::function<void()> then = {});

/// All that was enqueued there is done; of the legacy stream, on the blocking ones, too.
[[nodiscard]] bool over(Stream& stream);

/// All that the context's streams hold so far.
[[nodiscard]] std::vector<Point> all_enqueued(CUctx_st& context);

/// Waits until all that the context's streams (of any context on the device, for memory that goes away) hold is done.
void synchronize(CUctx_st& context);
void synchronize_device(const Device& device);

/// Sleeps a little longer the longer it is asked: what a GPU spends polling must not take a core from the CPU.
class Backoff {
 public:
  void pause();

 private:
  unsigned count_ = 0;
};

}  // namespace crosslane::gpu::emulated

// A stream as its handle points to it; the number keeps the struct from being empty for debuggers.
struct CUstream_st {
  std::shared_ptr<crosslane::gpu::emulated::Stream> stream;
};
