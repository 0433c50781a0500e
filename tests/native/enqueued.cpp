// See enqueued.h.
#include "native/enqueued.h"

#include "support/sharing.h"

#include <crosslane/crosslane.h>
#include <dlfcn.h>
#include <sched.h>

#include <array>
#include <string>
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

bool can_prepare(Program& program) {
  if (!take_turns(MPI_COMM_WORLD)) return true;
  CROSSLANE_STEP("preparing what ranks in turns cannot use");
  MPI_Comm world = MPI_COMM_NULL, alone = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  const int code = crosslane_prepare(world, 0, 0, nullptr);
  int error_class = MPI_SUCCESS, length = 0;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  MPI_Error_class(code, &error_class);
  if (code != MPI_SUCCESS) MPI_Error_string(code, text.data(), &length);
  CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_UNSUPPORTED_OPERATION);
  for (const char* const part : {"share a GPU without MPS", "nvidia-cuda-mps-control -d"})
    CROSSLANE_CHECK(std::string(text.data()).find(part) != std::string::npos, "\"{}\" does not say \"{}\"", text.data(),
                    part);
  MPI_Comm_free(&world);
  CROSSLANE_STEP("preparing what a rank has alone");
  MPI_Comm_split(MPI_COMM_WORLD, program.rank, 0, &alone);
  prepare(alone, 0);
  MPI_Comm_free(&alone);
  program.skip(
      "ranks take turns on a GPU that they share: crosslane_prepare refuses, as it must; nothing else is there to "
      "test");
  return false;
}

std::vector<std::uint32_t> words_of(std::uint64_t seed, int rank, std::size_t count) {
  Random random(mix(seed, rank));
  std::vector<std::uint32_t> words(count);
  for (auto& each : words) each = static_cast<std::uint32_t>(random.next());
  return words;
}

int missing(MPI_Comm communicator) {
  int rank = -2;
  CROSSLANE_MPI(crosslane_status(communicator, &rank));
  return rank;
}

}  // namespace crosslane::tests
