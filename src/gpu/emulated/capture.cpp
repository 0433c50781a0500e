// See capture.h. One mutex guards all captures: they are rare, and a capture spans streams and threads.
#include "gpu/emulated/capture.h"

#include <algorithm>
#include <condition_variable>
#include <thread>

namespace crosslane::gpu::emulated {
namespace {

struct Captures {
  std::mutex mutex;
  std::vector<std::shared_ptr<CaptureState>> running;
  std::atomic<std::size_t> count{0};  // of running; read without the mutex by every enqueue
  std::uint64_t next_id = 1;
};

Captures& captures() {
  static auto& instance = *new Captures();
  return instance;
}

std::uint64_t this_thread() {
  static auto& next = *new std::atomic<std::uint64_t>(1);
  static thread_local const std::uint64_t mine = next.fetch_add(1);
  return mine;
}

void merge(std::vector<std::size_t>& tail, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more) {
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
}

// The nodes from which `ends` can be reached, themselves included.
std::vector<bool> ancestors(const CUgraph_st& graph, const std::vector<std::size_t>& ends) {
  std::vector<bool> reached(graph.nodes.size(), false);
  for (const std::size_t node : ends) reached[node] = true;
  for (std::size_t node = graph.nodes.size(); node-- > 0;) {
    if (!reached[node]) continue;
    for (const std::size_t before_it : graph.nodes[node]->after) reached[before_it] = true;
  }
  return reached;
}

void end_locked(const std::shared_ptr<CaptureState>& capture) {
  Captures& all = captures();
  capture->ended = true;
  for (const auto& weak : capture->streams) {
    if (auto stream = weak.lock()) {
      stream->capture.reset();
      stream->tail.clear();
    }
  }
  std::erase(all.running, capture);
  all.count.store(all.running.size(), std::memory_order_release);
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool captured(Stream& stream, CUgraphNodeType type, const Action& action) {
  Captures& all = captures();
  if (all.count.load(std::memory_order_acquire) == 0) [[likely]]
    return false;
  const std::lock_guard lock(all.mutex);
  if (!stream.capture) {
    if (stream.kind == Stream::Kind::legacy) {
      for (const auto& capture : all.running) {
        for (const auto& weak : capture->streams) {
          const auto other = weak.lock();
          if (other && other->synchronizes_with_legacy() && &other->context == &stream.context) {
            capture->invalid = true;
            throw Failure{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
          }
        }
      }
    }
    return false;
  }
  CaptureState& capture = *stream.capture;
  require(!capture.invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  auto node = std::make_unique<CUgraphNode_st>();
  node->type = type;
  node->action = action;
  node->after = stream.tail;
  capture.graph->nodes.push_back(std::move(node));
  stream.tail = {capture.graph->nodes.size() - 1};
  return true;
}

std::optional<CapturedPoint> captured_point(Stream& stream) {
  Captures& all = captures();
  if (all.count.load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::lock_guard lock(all.mutex);
  if (!stream.capture) return std::nullopt;
  require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  return CapturedPoint{stream.capture, stream.tail};
}

void join(const std::shared_ptr<Stream>& stream, const CapturedPoint& point) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  require(!point.capture->ended, CUDA_ERROR_CAPTURED_EVENT);
  require(!point.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (!stream->capture) {
    if (stream->kind == Stream::Kind::legacy) {
      point.capture->invalid = true;
      throw Failure{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
    }
    stream->capture = point.capture;
    stream->tail.clear();
    point.capture->streams.push_back(stream);
  } else if (stream->capture != point.capture) {
    stream->capture->invalid = true;
    point.capture->invalid = true;
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_MERGE};
  }
  merge(stream->tail, point.nodes);
}

bool unsafe_now() noexcept {
  Captures& all = captures();
  if (all.count.load(std::memory_order_acquire) == 0) [[likely]]
    return false;
  const CUstreamCaptureMode mine = thread_capture_mode();
  if (mine == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  const std::lock_guard lock(all.mutex);
  bool unsafe = false;
  for (const auto& capture : all.running) {
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool own = capture->thread == this_thread();
    const bool prohibits =
        own || (mine == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!prohibits) continue;
    capture->invalid = true;
    unsafe = true;
  }
  return unsafe;
}

void forget_captured_stream(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  if (stream.capture) stream.capture->invalid = true;
}

void refuse_captured(Stream& stream) {
  Captures& all = captures();
  if (all.count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(all.mutex);
  if (!stream.capture) return;
  stream.capture->invalid = true;
  throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void refuse_captured(CUctx_st& context) {
  Captures& all = captures();
  if (all.count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(all.mutex);
  bool found = false;
  for (const auto& capture : all.running) {
    const bool concerned = std::ranges::any_of(capture->streams, [&](const auto& weak) {
      const auto stream = weak.lock();
      return stream && &stream->context == &context;
    });
    if (concerned) capture->invalid = found = true;
  }
  require(!found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void Executable::run(const Running& running) const {
  const auto run_node = [&](std::size_t node) {
    if (nodes[node].action && !running.aborted.load(std::memory_order_acquire)) nodes[node].action(running);
  };
  if (chain) {
    for (std::size_t node = 0; node < nodes.size(); ++node) run_node(node);
    return;
  }
  // Branches run at the same time, since one may wait for a word that another writes: each thread takes what is ready,
  // keeps one successor for itself and hands the others to new threads.
  std::vector<std::vector<std::size_t>> later(nodes.size());
  std::vector<std::atomic<std::size_t>> missing(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    missing[node].store(nodes[node].after.size(), std::memory_order_relaxed);
    for (const std::size_t before_it : nodes[node].after) later[before_it].push_back(node);
    if (nodes[node].after.empty()) ready.push_back(node);
  }
  std::mutex mutex;
  std::vector<std::thread> threads;  // guarded by mutex; joined from the front while later ones are added
  std::function<void(std::size_t)> follow = [&](std::size_t node) {
    for (;;) {
      run_node(node);
      std::optional<std::size_t> next;
      for (const std::size_t successor : later[node]) {
        // acq_rel: the last of the predecessors to come sees what all of them wrote.
        if (missing[successor].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
        if (!next) {
          next = successor;
        } else {
          const std::lock_guard lock(mutex);
          threads.emplace_back(follow, successor);
        }
      }
      if (!next) return;
      node = *next;
    }
  };
  {
    const std::lock_guard lock(mutex);
    for (std::size_t at = 1; at < ready.size(); ++at) threads.emplace_back(follow, ready[at]);
  }
  if (!ready.empty()) follow(ready.front());
  for (std::size_t at = 0;; ++at) {
    std::thread thread;
    {
      const std::lock_guard lock(mutex);
      if (at == threads.size()) break;
      thread = std::move(threads[at]);
    }
    thread.join();  // whatever it added is in the list by now
  }
}

}  // namespace crosslane::gpu::emulated

using namespace crosslane::gpu::emulated;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return enter("cuStreamBeginCapture_v2", plain, [&] {
    require(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    require(stream->kind != Stream::Kind::legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    Captures& all = captures();
    const std::lock_guard lock(all.mutex);
    require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<CaptureState>();
    capture->id = all.next_id++;
    capture->mode = mode;
    capture->thread = this_thread();
    capture->origin = stream.get();
    capture->streams.push_back(stream);
    all.running.push_back(capture);
    all.count.store(all.running.size(), std::memory_order_release);
    stream->capture = std::move(capture);
    stream->tail.clear();
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return enter("cuStreamEndCapture", plain, [&] {
    require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
    *graph = nullptr;
    const auto stream = resolve(handle);
    const std::lock_guard lock(captures().mutex);
    const auto capture = stream->capture;
    require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    require(capture->origin == stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == this_thread(),
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    const std::vector<bool> joined = ancestors(*capture->graph, stream->tail);
    const bool all_joined = std::all_of(joined.begin(), joined.end(), [](bool one) { return one; });
    const bool invalid = capture->invalid;
    end_locked(capture);
    require(!invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(all_joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    *graph = capture->graph.release();
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return enter("cuStreamIsCapturing", plain, [&] {
    require(status != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    const std::lock_guard lock(captures().mutex);
    *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, size_t* count) {
  return enter("cuStreamGetCaptureInfo_v2", plain, [&] {
    require(status != nullptr, CUDA_ERROR_INVALID_VALUE);
    static thread_local std::vector<CUgraphNode> dependencies;  // valid until this thread's next call, as documented
    const auto stream = resolve(handle);
    const std::lock_guard lock(captures().mutex);
    const auto& capture = stream->capture;
    *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
    if (id != nullptr) *id = capture->id;
    if (graph != nullptr) *graph = capture->graph.get();
    dependencies.clear();
    for (const std::size_t node : stream->tail) dependencies.push_back(capture->graph->nodes[node].get());
    if (nodes != nullptr) *nodes = dependencies.data();
    if (count != nullptr) *count = dependencies.size();
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;  // all edges are plain ones
  return cuStreamGetCaptureInfo_v2(handle, status, id, graph, nodes, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return enter("cuThreadExchangeStreamCaptureMode", plain, [&] {
    require(mode != nullptr && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    std::swap(*mode, thread_capture_mode());
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return enter("cuGraphGetNodes", plain, [&] {
    require(graph != nullptr && count != nullptr, CUDA_ERROR_INVALID_VALUE);
    const std::size_t all = graph->nodes.size();
    for (std::size_t at = 0; nodes != nullptr && at < *count; ++at)
      nodes[at] = at < all ? graph->nodes[at].get() : nullptr;
    *count = nodes == nullptr ? all : std::min(*count, all);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return enter("cuGraphNodeGetType", plain, [&] {
    require(node != nullptr && type != nullptr, CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
  });
}

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  return enter("cuGraphCreate", plain, [&] {
    require(graph != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *graph = new CUgraph_st();
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return enter("cuGraphDestroy", plain, [&] {
    require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
    delete graph;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return enter("cuGraphInstantiateWithFlags", plain, [&] {
    constexpr unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    require(exec != nullptr && graph != nullptr && (flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
    auto executable = std::make_shared<Executable>();
    for (std::size_t at = 0; at < graph->nodes.size(); ++at) {
      const CUgraphNode_st& node = *graph->nodes[at];
      // A chain: each node follows the one before it, alone or among others.
      if (at > 0 && std::find(node.after.begin(), node.after.end(), at - 1) == node.after.end())
        executable->chain = false;
      executable->nodes.push_back(node);
    }
    auto made = std::make_unique<CUgraphExec_st>();
    made->executable = std::move(executable);
    *exec = made.release();
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return enter("cuGraphExecDestroy", plain, [&] {
    require(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
    delete exec;  // launches under way hold the executable themselves
  });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  return enter("cuGraphUpload", plain, [&] {
    require(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
    refuse_captured(*resolve(handle));
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  return enter("cuGraphLaunch", plain, [&] {
    require(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    const std::lock_guard lock(exec->mutex);
    std::vector<Point> after;
    if (exec->last.stream && exec->last.stream != stream && !exec->last.reached()) after.push_back(exec->last);
    const auto executable = exec->executable;
    const Point done = submit(
        stream, CU_GRAPH_NODE_TYPE_GRAPH, [executable](const Running& running) { executable->run(running); },
        std::move(after));
    if (done.stream) exec->last = done;
  });
}

}  // extern "C"
