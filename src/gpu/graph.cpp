// See graph.h.
#include "gpu/graph.h"

#include <utility>

namespace crosslane::gpu {

GraphExec::GraphExec(GraphExec&& other) noexcept : driver_(other.driver_), exec_(std::exchange(other.exec_, nullptr)) {}

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(exec_, other.exec_);
  return *this;
}

GraphExec::~GraphExec() {
  if (exec_ != nullptr && !driver_->unloading()) driver_->graph_exec_destroy(exec_);
}

void GraphExec::launch(StreamView stream) const {
  check(*driver_, driver_->graph_launch(exec_, stream.handle()), "cuGraphLaunch");
}

void GraphExec::upload(StreamView stream) const {
  check(*driver_, driver_->graph_upload(exec_, stream.handle()), "cuGraphUpload");
}

Capture::Capture(StreamView stream, CUstreamCaptureMode mode) : stream_(stream) {
  const Driver& driver = stream.driver();
  check(driver, driver.stream_begin_capture(stream.handle(), mode), "cuStreamBeginCapture");
}

Capture::~Capture() {
  const Driver& driver = stream_.driver();
  if (!running_ || driver.unloading()) return;
  CUgraph graph = nullptr;
  if (driver.stream_end_capture(stream_.handle(), &graph) == CUDA_SUCCESS && graph != nullptr)
    driver.graph_destroy(graph);
}

GraphExec Capture::end() {
  const Driver& driver = stream_.driver();
  CUgraph graph = nullptr;
  running_ = false;
  check(driver, driver.stream_end_capture(stream_.handle(), &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  const CUresult result = driver.graph_instantiate(&exec, graph, 0);
  driver.graph_destroy(graph);  // the executable graph needs it no longer
  check(driver, result, "cuGraphInstantiate");
  return {driver, exec};
}

}  // namespace crosslane::gpu
