// See graphs.h.
#include "collectives/graphs.h"

#include "common/device.h"

namespace crosslane::bench {

void Graphs::record(const Chain& chain, int calls) {
  if (recorded_.contains(calls)) return;
  // Relaxed: what is called while it is recorded may ask the driver for what a capture forbids other threads.
  check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  enqueue_(chain, calls);
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  const CUresult made = cuGraphInstantiate(&exec, graph, 0);
  cuGraphDestroy(graph);
  check(made, "cuGraphInstantiate");
  recorded_.emplace(calls, exec);
  check(cuGraphUpload(exec, stream_), "cuGraphUpload");
  check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

void Graphs::replay(const Chain& chain, int calls) {
  record(chain, calls);
  check(cuGraphLaunch(recorded_.at(calls).get(), stream_), "cuGraphLaunch");
  check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

}  // namespace crosslane::bench
