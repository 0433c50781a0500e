// See enqueued.h.
#include "native/enqueued.h"

#include <crosslane/crosslane.h>
#include <dlfcn.h>
#include <sched.h>

#include <utility>

namespace crosslane::tests {

Stream::Stream(unsigned flags) {
  CROSSLANE_CUDA(cuStreamCreate(&stream_, flags));
  CROSSLANE_CUDA(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
}

Stream::Stream(Stream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  cuEventDestroy(event_);
  cuStreamDestroy(stream_);
}

void Stream::finish() const {
  CUresult result = CUDA_SUCCESS;
  while ((result = cuStreamQuery(stream_)) == CUDA_ERROR_NOT_READY) sched_yield();
  CROSSLANE_CUDA(result);
}

void Stream::follow(const Stream& other) const {
  CROSSLANE_CUDA(cuEventRecord(other.event_, other.stream_));
  CROSSLANE_CUDA(cuStreamWaitEvent(stream_, other.event_, 0));
}

Graph::Graph(const Stream& stream) : stream_(stream) {
  CROSSLANE_CUDA(cuStreamBeginCapture(stream_.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL));
}

Graph::~Graph() {
  if (exec_ != nullptr) cuGraphExecDestroy(exec_);
}

void Graph::end() {
  CUgraph graph = nullptr;
  CROSSLANE_CUDA(cuStreamEndCapture(stream_.handle(), &graph));
  CROSSLANE_CUDA(cuGraphInstantiate(&exec_, graph, 0));
  CROSSLANE_CUDA(cuGraphDestroy(graph));
}

void Graph::launch() const { CROSSLANE_CUDA(cuGraphLaunch(exec_, stream_.handle())); }

void NothingAllocated::forbid(int on) {
  static auto* const known = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "crosslane_emulated_forbid"));
  if (known != nullptr) known(on);
}

int enqueue(const Job& job, const Job::Run& run, const Stream& stream) {
  const NothingAllocated scope;
  const Case& what = run.what;
  const MPI_Comm comm = job.communicator();
  const auto [send, send_count, send_type, receive, receive_count, receive_type] = job.arguments(run);
  const auto count = static_cast<MPI_Count>(what.units);
  const MPI_Datatype type = what.element->base.type;
  CUstream const on = stream.handle();
  switch (what.kind) {
    case Kind::allreduce:
      return crosslane_allreduce_enqueue(send, receive, count, type, what.op, comm, on);
    case Kind::reduce:
      return crosslane_reduce_enqueue(send, receive, count, type, what.op, what.root, comm, on);
    case Kind::scan:
      return crosslane_scan_enqueue(send, receive, count, type, what.op, comm, on);
    case Kind::exscan:
      return crosslane_exscan_enqueue(send, receive, count, type, what.op, comm, on);
    case Kind::reduce_scatter_block:
      return crosslane_reduce_scatter_block_enqueue(send, receive, count, type, what.op, comm, on);
    case Kind::broadcast:
      return crosslane_broadcast_enqueue(receive, receive_count, receive_type, what.root, comm, on);
    case Kind::allgather:
      return crosslane_allgather_enqueue(send, send_count, send_type, receive, receive_count, receive_type, comm, on);
    case Kind::alltoall:
      return crosslane_alltoall_enqueue(send, send_count, send_type, receive, receive_count, receive_type, comm, on);
    case Kind::gather:
      return crosslane_gather_enqueue(send, send_count, send_type, receive, receive_count, receive_type, what.root,
                                      comm, on);
    case Kind::scatter:
      return crosslane_scatter_enqueue(send, send_count, send_type, receive, receive_count, receive_type, what.root,
                                       comm, on);
  }
  return MPI_ERR_ARG;
}

void prepare(MPI_Comm communicator, std::size_t bytes, const std::vector<void*>& buffers) {
  CROSSLANE_MPI(
      crosslane_prepare(communicator, static_cast<MPI_Count>(bytes), static_cast<int>(buffers.size()), buffers.data()));
}

int missing(MPI_Comm communicator) {
  int rank = -2;
  CROSSLANE_MPI(crosslane_status(communicator, &rank));
  return rank;
}

}  // namespace crosslane::tests
