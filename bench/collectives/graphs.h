// Chains of calls recorded as CUDA graphs, one for each number of calls: what a replay takes is the GPU's time, without what the host takes
// to enqueue a call. It must not know by which means a call is made.
#pragma once

#include "collectives/chain.h"

#include <cuda.h>

#include <map>
#include <memory>
#include <utility>

namespace crosslane::bench {

/// The graphs of one chain by one means, whose `enqueue` puts its first calls on the stream.
class Graphs {
 public:
  Graphs(CUstream stream, ChainCalls enqueue) : stream_(stream), enqueue_(std::move(enqueue)) {}

  /// Records and uploads the graph of so many calls, unless there is one. Waits for no other rank.
  void record(const Chain& chain, int calls);
  /// Replays it once, to its end; records it first where there is none.
  void replay(const Chain& chain, int calls);

 private:
  struct Destroy {
    void operator()(CUgraphExec graph) const noexcept { cuGraphExecDestroy(graph); }
  };

  CUstream stream_;
  ChainCalls enqueue_;
  std::map<int, std::unique_ptr<CUgraphExec_st, Destroy>> recorded_;
};

}  // namespace crosslane::bench
