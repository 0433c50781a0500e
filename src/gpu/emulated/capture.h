// Graphs and their capture from streams.
// Which call may be made while a capture runs is CUDA's table of capture modes; before() in state.cpp asks here.
#pragma once

#include "gpu/emulated/stream.h"

#include <optional>

// A node as its handle points to it.
struct CUgraphNode_st {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  crosslane::gpu::emulated::Action action;  // empty for an empty node
  std::vector<std::size_t> after;           // indices of nodes that come before it in the graph's list
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each after all that it depends on
};

namespace crosslane::gpu::emulated {

struct CaptureState {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  // that began it
  const Stream* origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::vector<std::weak_ptr<Stream>> streams;
  bool invalid = false;
  bool ended = false;
};

/// What an event that was recorded in a captured stream stands for.
struct CapturedPoint {
  std::shared_ptr<CaptureState> capture;
  std::vector<std::size_t> nodes;
};

/// Adds the action as a node if the stream is being captured; throws Failure where the capture is invalid, or where
/// the stream is a legacy one that a captured blocking stream would have to wait for.
bool captured(Stream& stream, CUgraphNodeType type, const Action& action);

/// The captured point that the stream is at, if it is being captured.
std::optional<CapturedPoint> captured_point(Stream& stream);

/// The stream waits for a captured event: joins its capture if it is in none.
void join(const std::shared_ptr<Stream>& stream, const CapturedPoint& point);

/// Is there a capture that prohibits unsafe calls on this thread? If so the capture becomes invalid.
bool unsafe_now() noexcept;

/// A stream is destroyed: its capture becomes invalid.
void forget_captured_stream(Stream& stream);

/// Throws STREAM_CAPTURE_UNSUPPORTED (and invalidates) if the stream is being captured: for calls that wait for it.
void refuse_captured(Stream& stream);

/// The same if any stream of the context is: for calls that concern all of them.
void refuse_captured(CUctx_st& context);

/// This thread's interaction mode, for cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode& thread_capture_mode();

/// An executable graph: the nodes by value, runnable any number of times.
struct Executable {
  std::vector<CUgraphNode_st> nodes;
  bool chain = true;  // each node follows the one before
  /// Runs all nodes, those that do not depend on each other at the same time.
  void run(const Running& running) const;
};

}  // namespace crosslane::gpu::emulated

struct CUgraphExec_st {
  std::shared_ptr<const crosslane::gpu::emulated::Executable> executable;
  std::mutex mutex;
  crosslane::gpu::emulated::Point last;  // launches of one executable graph follow each other
};
