// Wrong arguments to crosslane.h's functions, each with its MPI error class and a message that names argument and remedy, after
// which right calls are right; communicators that cannot be prepared, on all ranks alike; a rank that never comes.
// --what arguments|gives_up|fails|refused|in_turns  --told <what the refusal says; . for a space>
#include "native/enqueued.h"

#include <crosslane/crosslane.h>
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int count = 1000;
constexpr std::size_t bytes = count * sizeof(int);
const std::array<CUstream, 3> default_streams{nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

void returns_errors(MPI_Comm communicator) { MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN); }

void expect(int result, int error_class, const std::string& part) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0, found = MPI_SUCCESS;
  MPI_Error_class(result, &found);
  if (result != MPI_SUCCESS) MPI_Error_string(result, text.data(), &length);
  const std::string message(text.data(), static_cast<std::size_t>(length));
  CROSSLANE_CHECK(found == error_class, "error class {} instead of {}: \"{}\"", found, error_class, message);
  CROSSLANE_CHECK(message.find(part) != std::string::npos, "\"{}\" does not say \"{}\"", message, part);
}

void sum_of_nothing(void*, void*, int*, MPI_Datatype*) {}

int called = 0;
void count_errors(MPI_Comm*, int*, ...) { ++called; }

class Arguments {
 public:
  explicit Arguments(Program& program) : program_(program) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    returns_errors(comm_);
    returns_errors(MPI_COMM_WORLD);
    returns_errors(MPI_COMM_SELF);
  }
  ~Arguments() { MPI_Comm_free(&comm_); }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void run() {
    CROSSLANE_STEP("before it is prepared");
    expect(allreduce(), MPI_ERR_COMM, "crosslane_prepare");
    expect(crosslane_prepare(MPI_COMM_NULL, 0, 0, nullptr), MPI_ERR_COMM, "MPI_COMM_NULL");
    expect(crosslane_status(MPI_COMM_NULL, nullptr), MPI_ERR_COMM, "MPI_COMM_NULL");
    int missing = 7;
    expect(crosslane_status(comm_, &missing), MPI_SUCCESS, "");
    CROSSLANE_CHECK_EQUAL(missing, -1);
    expect(crosslane_status(comm_, nullptr), MPI_ERR_ARG, "argument missing");
    preparations();
    if (!can_prepare(program_)) return;
    CROSSLANE_STEP("preparing");
    CROSSLANE_MPI(crosslane_prepare(comm_, bytes, 0, nullptr));
    check_sum();
    calls();
    check_sum();
    freed();
    check_sum();
    freed_communicator();
    other_handler();
  }

 private:
  int allreduce(const void* send = nullptr, void* receive = nullptr, MPI_Count n = count, MPI_Datatype type = MPI_INT,
                MPI_Op op = MPI_SUM, CUstream stream = nullptr) {
    return crosslane_allreduce_enqueue(send == nullptr ? send_.data() : send,
                                       receive == nullptr ? receive_.data() : receive, n, type, op, comm_,
                                       stream == nullptr ? stream_.handle() : stream);
  }

  void check_sum() {
    CROSSLANE_STEP("a right call");
    send_.fill(std::vector<int>(count, program_.rank + 1));
    CROSSLANE_MPI(allreduce());
    stream_.finish();
    const int sum = program_.size * (program_.size + 1) / 2;
    CROSSLANE_CHECK(receive_.values<int>() == std::vector<int>(count, sum), "the sum is wrong");
  }

  // All ranks are told, also where one alone is wrong.
  void preparations() {
    CROSSLANE_STEP("wrong preparations");
    const bool odd = program_.rank == 1;
    expect(crosslane_prepare(comm_, -1, 0, nullptr), MPI_ERR_COUNT, "argument bytes is -1");
    expect(crosslane_prepare(comm_, odd ? -1 : 0, 0, nullptr), MPI_ERR_COUNT,
           odd ? "argument bytes" : "rank 1 of the communicator cannot take part: argument bytes");
    expect(crosslane_prepare(comm_, odd ? 10 : 20, 0, nullptr), MPI_ERR_ARG, "must be the same on all of them");
    expect(crosslane_prepare(comm_, 0, odd ? -3 : 0, nullptr), MPI_ERR_COUNT, "argument count is -3");
    expect(crosslane_prepare(comm_, 0, 1, nullptr), MPI_ERR_ARG, "argument buffers is null");
    int host = 0;
    std::array<void*, 2> buffers{send_.data(), odd ? static_cast<void*>(&host) : receive_.data()};
    expect(crosslane_prepare(comm_, 0, 2, buffers.data()), MPI_ERR_BUFFER, "argument buffers[1]");
    expect(crosslane_prepare(comm_, 0, 2, buffers.data()), MPI_ERR_BUFFER, "is host memory; name device memory alone");
    buffers[1] = odd ? nullptr : receive_.data();
    expect(crosslane_prepare(comm_, 0, 2, buffers.data()), MPI_ERR_BUFFER, "argument buffers[1] is null");
    expect(crosslane_prepare(comm_, 0, odd ? 1 : 0, buffers.data()), MPI_ERR_ARG, "must be the same on all of them");
    int missing = 0;
    CROSSLANE_MPI(crosslane_status(comm_, &missing));
    CROSSLANE_CHECK_EQUAL(missing, -1);
    MPI_Comm half = MPI_COMM_NULL, across = MPI_COMM_NULL;
    const int upper = program_.rank > 0 ? 1 : 0;
    MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper != 0 ? 0 : 1, 7, &across);
    returns_errors(across);
    expect(crosslane_prepare(across, 0, 0, nullptr), MPI_ERR_UNSUPPORTED_OPERATION, "inter-communicator");
    MPI_Comm_free(&across);
    MPI_Comm_free(&half);
  }

  void calls() {
    CROSSLANE_STEP("wrong calls");
    std::vector<int> host(count);
    const bool has_managed = program_.device()->has_managed_memory();
    const Memory managed(has_managed ? MemoryKind::managed : MemoryKind::host, bytes);
    const auto n = static_cast<std::size_t>(program_.size);
    Memory many(MemoryKind::device, n * bytes);
    const std::string remedy = " memory; enqueued calls need device memory: copy it there, or use MPI's own call";
    expect(allreduce(host.data()), MPI_ERR_BUFFER, "argument sendbuf");
    expect(allreduce(host.data()), MPI_ERR_BUFFER, "is host" + remedy);
    expect(allreduce(nullptr, managed.data()), MPI_ERR_BUFFER, "argument recvbuf");
    expect(allreduce(nullptr, managed.data()), MPI_ERR_BUFFER, (has_managed ? "is managed" : "is host") + remedy);
    no_buffers();
    wrong_counts(many.data());
    expect(allreduce(nullptr, nullptr, 1 << 20), MPI_ERR_BUFFER, "ends before; check count and datatype");
    expect(allreduce(nullptr, nullptr, count / 4, MPI_LONG_DOUBLE), MPI_ERR_TYPE, "predefined datatypes");
    expect(allreduce(nullptr, nullptr, count, MPI_FLOAT, MPI_BAND), MPI_ERR_OP, "does not define");
    MPI_Op own = MPI_OP_NULL;
    MPI_Op_create(sum_of_nothing, 1, &own);
    expect(allreduce(nullptr, nullptr, count, MPI_INT, own), MPI_ERR_OP, "MPI_MAXLOC; use MPI's own call");
    MPI_Op_free(&own);
    expect(allreduce(nullptr, nullptr, count, MPI_INT, MPI_REPLACE), MPI_ERR_OP,
           "argument op is MPI_REPLACE, which is for one-sided calls alone: reductions take MPI_SUM, ");
    expect(allreduce(nullptr, nullptr, count, MPI_INT, MPI_NO_OP), MPI_ERR_OP, "argument op is MPI_NO_OP");
    expect(allreduce(nullptr, nullptr, count, MPI_INT, MPI_OP_NULL), MPI_ERR_OP, "MPI_OP_NULL, which is no operation");
    expect(allreduce(nullptr, nullptr, count, MPI_DATATYPE_NULL), MPI_ERR_TYPE,
           "argument datatype is MPI_DATATYPE_NULL, which is no datatype");
    for (const int root : {-1, program_.size})
      expect(crosslane_broadcast_enqueue(send_.data(), count, MPI_INT, root, comm_, stream_.handle()), MPI_ERR_ROOT,
             "argument root");
    if (program_.rank != 0) for_the_root_alone();
    undefined_operations();
    more_than_64_bits(many.data());
    MPI_Datatype gaps = MPI_DATATYPE_NULL;
    MPI_Type_vector(10, 1, 3, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    expect(crosslane_allgather_enqueue(send_.data(), 1, gaps, many.data(), 10, MPI_INT, comm_, stream_.handle()),
           MPI_ERR_TYPE, "without gaps");
    MPI_Type_free(&gaps);
    int gpus = 0;
    CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
    on_default_streams();
    if (gpus > 1) on_another_gpu();
    // Nothing to do is done.
    CROSSLANE_MPI(allreduce(nullptr, nullptr, 0));
    CROSSLANE_MPI(crosslane_broadcast_enqueue(nullptr, 0, MPI_INT, 0, comm_, stream_.handle()));
    // What is not significant may be anything.
    CROSSLANE_MPI(crosslane_allgather_enqueue(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, many.data(), 0, MPI_INT, comm_,
                                              stream_.handle()));
    const bool root = program_.rank == 0;
    CROSSLANE_MPI(crosslane_scatter_enqueue(many.data(), root ? 0 : -1, MPI_INT, root ? MPI_IN_PLACE : receive_.data(),
                                            root ? -1 : 0, MPI_INT, 0, comm_, stream_.handle()));
  }

  // Null, and MPI_IN_PLACE where it is not taken.
  void no_buffers() {
    const MPI_Comm comm = comm_;
    CUstream const on = stream_.handle();
    void *const from = send_.data(), *const to = receive_.data();
    expect(crosslane_allreduce_enqueue(nullptr, to, count, MPI_INT, MPI_SUM, comm, on), MPI_ERR_BUFFER,
           "argument sendbuf is null");
    expect(crosslane_allreduce_enqueue(from, nullptr, count, MPI_INT, MPI_SUM, comm, on), MPI_ERR_BUFFER,
           "argument recvbuf is null");
    expect(crosslane_allreduce_enqueue(from, MPI_IN_PLACE, count, MPI_INT, MPI_SUM, comm, on), MPI_ERR_BUFFER,
           "argument recvbuf is MPI_IN_PLACE, which this call takes only as sendbuf");
    expect(crosslane_broadcast_enqueue(MPI_IN_PLACE, count, MPI_INT, 0, comm, on), MPI_ERR_BUFFER,
           "argument buffer is MPI_IN_PLACE, which this call does not take");
    if (program_.rank == 0)
      expect(crosslane_scatter_enqueue(MPI_IN_PLACE, 1, MPI_INT, to, 1, MPI_INT, 0, comm, on), MPI_ERR_BUFFER,
             "argument sendbuf is MPI_IN_PLACE, which this call takes only as recvbuf, at the root");
  }

  // Counts and arrays by the names that crosslane.h gives them.
  void wrong_counts(void* many) {
    const auto n = static_cast<std::size_t>(program_.size);
    const MPI_Comm comm = comm_;
    CUstream const on = stream_.handle();
    void *const from = send_.data(), *const to = receive_.data();
    expect(allreduce(nullptr, nullptr, -1), MPI_ERR_COUNT, "argument count is -1; a count is never negative");
    expect(crosslane_broadcast_enqueue(to, -2, MPI_INT, 0, comm, on), MPI_ERR_COUNT, "argument count is -2");
    expect(crosslane_reduce_scatter_block_enqueue(from, to, -1, MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT,
           "argument recvcount is -1");
    expect(crosslane_allgather_enqueue(from, -1, MPI_INT, many, 1, MPI_INT, comm, on), MPI_ERR_COUNT,
           "argument sendcount is -1");
    expect(crosslane_alltoall_enqueue(from, 1, MPI_INT, many, -1, MPI_INT, comm, on), MPI_ERR_COUNT,
           "argument recvcount is -1");
    const std::vector<MPI_Count> ones(n, 1);
    std::vector<MPI_Count> counts = ones;
    counts[1] = -1;
    std::vector<MPI_Aint> displacements(n);
    const MPI_Count* const right = ones.data();
    const MPI_Count* const wrong = counts.data();
    const MPI_Aint* const at = displacements.data();
    const auto everybody = [&](const MPI_Count* sendcounts, const MPI_Aint* sdispls, const MPI_Count* recvcounts,
                               const MPI_Aint* rdispls) {
      return crosslane_alltoallv_enqueue(from, sendcounts, sdispls, MPI_INT, many, recvcounts, rdispls, MPI_INT, comm,
                                         on);
    };
    expect(everybody(wrong, at, right, at), MPI_ERR_COUNT, "argument sendcounts[1] is -1");
    expect(everybody(right, at, wrong, at), MPI_ERR_COUNT, "argument recvcounts[1] is -1");
    expect(everybody(nullptr, at, right, at), MPI_ERR_ARG, "argument sendcounts is null");
    expect(everybody(right, nullptr, right, at), MPI_ERR_ARG, "argument sdispls is null");
    expect(everybody(right, at, nullptr, at), MPI_ERR_ARG, "argument recvcounts is null");
    expect(everybody(right, at, right, nullptr), MPI_ERR_ARG, "argument rdispls is null");
    expect(crosslane_reduce_scatter_enqueue(from, to, wrong, MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT,
           "argument recvcounts[1] is -1");
    expect(crosslane_allgatherv_enqueue(from, 1, MPI_INT, many, right, nullptr, MPI_INT, comm, on), MPI_ERR_ARG,
           "argument displs is null");
    displacements[1] = -(MPI_Aint{1} << 32);
    expect(crosslane_allgatherv_enqueue(from, 1, MPI_INT, many, right, at, MPI_INT, comm, on), MPI_ERR_BUFFER,
           "argument recvbuf is device memory, but displs[1], which is -4294967296, leads out of it, to ");
    expect(everybody(right, at, right, std::vector<MPI_Aint>(n).data()), MPI_ERR_BUFFER,
           "argument sendbuf is device memory, but sdispls[1], which is -4294967296, leads out of it, to ");
    displacements[1] = 1 << 20;
    expect(crosslane_allgatherv_enqueue(from, 1, MPI_INT, many, right, at, MPI_INT, comm, on), MPI_ERR_BUFFER,
           "ends before; check recvcounts, displs and datatype");
  }

  // MPI_IN_PLACE, on the other ranks.
  void for_the_root_alone() {
    const auto n = static_cast<std::size_t>(program_.size);
    const std::vector<MPI_Count> counts(n, 1);
    const std::vector<MPI_Aint> displacements(n);
    const MPI_Comm comm = comm_;
    CUstream const on = stream_.handle();
    void* const to = receive_.data();
    const std::string send = "argument sendbuf is MPI_IN_PLACE", receive = "argument recvbuf is MPI_IN_PLACE";
    for (const MPI_Count each : {count, 0}) {
      expect(crosslane_reduce_enqueue(MPI_IN_PLACE, nullptr, each, MPI_INT, MPI_SUM, 0, comm, on), MPI_ERR_BUFFER,
             send);
      expect(crosslane_gather_enqueue(MPI_IN_PLACE, each, MPI_INT, to, each, MPI_INT, 0, comm, on), MPI_ERR_BUFFER,
             send);
      expect(crosslane_gatherv_enqueue(MPI_IN_PLACE, each, MPI_INT, to, counts.data(), displacements.data(), MPI_INT, 0,
                                       comm, on),
             MPI_ERR_BUFFER, send);
      expect(crosslane_scatter_enqueue(nullptr, each, MPI_INT, MPI_IN_PLACE, each, MPI_INT, 0, comm, on),
             MPI_ERR_BUFFER, receive);
      expect(crosslane_scatterv_enqueue(nullptr, counts.data(), displacements.data(), MPI_INT, MPI_IN_PLACE, each,
                                        MPI_INT, 0, comm, on),
             MPI_ERR_BUFFER, receive);
    }
  }

  // Truth values are no numbers, and have no bits; bytes have nothing else; and integers of Fortran, or of all languages, are no truth values.
  void undefined_operations() {
    for (const MPI_Op op : {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR})
      expect(allreduce(nullptr, nullptr, count, MPI_BYTE, op), MPI_ERR_OP, "does not define");
    CROSSLANE_MPI(allreduce(nullptr, nullptr, count, MPI_BYTE, MPI_BXOR));
    for (const MPI_Datatype integer : {MPI_INTEGER, MPI_AINT, MPI_OFFSET, MPI_COUNT}) {
      if (integer == MPI_DATATYPE_NULL) continue;  // an MPI without Fortran
      for (const MPI_Op op : {MPI_LAND, MPI_LOR, MPI_LXOR})
        expect(allreduce(nullptr, nullptr, count / 2, integer, op), MPI_ERR_OP, "does not define");
      CROSSLANE_MPI(allreduce(nullptr, nullptr, count / 2, integer, MPI_BOR));
    }
    stream_.finish();
    for (const MPI_Datatype truth : {MPI_C_BOOL, MPI_LOGICAL}) {
      if (truth == MPI_DATATYPE_NULL) continue;  // an MPI without Fortran
      for (const MPI_Op op : {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR})
        expect(allreduce(nullptr, nullptr, count, truth, op), MPI_ERR_OP, "does not define");
    }
    std::vector<unsigned char> truths(bytes, 1);
    truths[1] = program_.rank == 0 ? 1 : 0;
    send_.fill(truths);
    CROSSLANE_MPI(allreduce(nullptr, nullptr, count, MPI_C_BOOL, MPI_LAND));
    stream_.finish();
    const auto all = receive_.values<unsigned char>();
    CROSSLANE_CHECK(all[0] == 1 && all[1] == 0 && all[2] == 1, "the conjunction is wrong");
  }

  // Counts of which nothing, or something small, is left in 64 bits, of which one is the sign; and displacements.
  void more_than_64_bits(void* many) {
    const auto n = static_cast<std::size_t>(program_.size);
    const MPI_Comm comm = comm_;
    CUstream const on = stream_.handle();
    void *const from = send_.data(), *const to = receive_.data();
    constexpr MPI_Count far = MPI_Count{1} << 62;
    const std::string told = "63 bits count";
    for (const MPI_Count each : {far / 2, far, far + 16}) {
      expect(allreduce(nullptr, nullptr, each), MPI_ERR_COUNT, told);
      expect(crosslane_reduce_enqueue(from, to, each, MPI_INT, MPI_SUM, 0, comm, on), MPI_ERR_COUNT, told);
      expect(crosslane_scan_enqueue(from, to, each, MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT, told);
      expect(crosslane_reduce_scatter_block_enqueue(from, to, each, MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT, told);
      expect(crosslane_broadcast_enqueue(to, each, MPI_INT, 0, comm, on), MPI_ERR_COUNT, told);
      std::vector<MPI_Count> counts(n, 0);
      counts[1] = each;
      expect(crosslane_reduce_scatter_enqueue(from, to, counts.data(), MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT,
             told);
    }
    // One block would fit.
    const std::vector<MPI_Count> counts(n, far / 4);
    expect(crosslane_reduce_scatter_block_enqueue(from, to, far / 4, MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT, told);
    expect(crosslane_reduce_scatter_enqueue(from, to, counts.data(), MPI_INT, MPI_SUM, comm, on), MPI_ERR_COUNT, told);
    expect(crosslane_allgather_enqueue(from, far / 4, MPI_INT, many, far / 4, MPI_INT, comm, on), MPI_ERR_COUNT, told);

    const std::vector<MPI_Count> ones(n, 1);
    const std::vector<MPI_Aint> near(n);
    std::vector<MPI_Aint> displacements(n);
    // The first element of the last one still has an address.
    for (const MPI_Aint displacement : {MPI_Aint{far}, -MPI_Aint{far}, MPI_Aint{far} / 2 - 1}) {
      displacements[1] = displacement;
      expect(crosslane_allgatherv_enqueue(from, 1, MPI_INT, many, ones.data(), displacements.data(), MPI_INT, comm, on),
             MPI_ERR_ARG, "argument recvbuf: the displacement of block 1");
      expect(crosslane_alltoallv_enqueue(from, ones.data(), displacements.data(), MPI_INT, many, ones.data(),
                                         near.data(), MPI_INT, comm, on),
             MPI_ERR_ARG, "argument sendbuf: the displacement of block 1");
      if (program_.rank == 0)
        expect(
            crosslane_gatherv_enqueue(from, 1, MPI_INT, many, ones.data(), displacements.data(), MPI_INT, 0, comm, on),
            MPI_ERR_ARG, "argument recvbuf: the displacement of block 1");
    }
  }

  void on_another_gpu() {
    const Device other(program_.device()->ordinal() + 1);
    {
      const Stream there;
      expect(allreduce(nullptr, nullptr, count, MPI_INT, MPI_SUM, there.handle()), MPI_ERR_ARG, "argument stream");
      const Memory far(MemoryKind::device, bytes);
      expect(allreduce(far.data()), MPI_ERR_BUFFER, "argument sendbuf is memory of another GPU");
      // The current context does not matter for a stream that was made, but says whose the default ones are.
      program_.device()->make_current();
      other.make_current();
      send_.fill(std::vector<int>(count, 1));
      CROSSLANE_MPI(allreduce());
      stream_.finish();
      for (CUstream const by_default : default_streams) {
        for (const MPI_Comm comm : {comm_, MPI_COMM_SELF})
          expect(sum_on(by_default, comm), MPI_ERR_ARG, "argument stream: default streams are the current context's");
      }
      expect(sum_on(there.handle(), MPI_COMM_SELF), MPI_ERR_ARG, "argument stream is of another GPU or context");
      CROSSLANE_MPI(sum_on(stream_.handle(), MPI_COMM_SELF));
      stream_.finish();
    }
    program_.device()->make_current();
  }

  // With the right context current, and with none.
  void on_default_streams() {
    CROSSLANE_STEP("default streams");
    CUcontext own = nullptr;
    CROSSLANE_CUDA(cuCtxGetCurrent(&own));
    for (CUcontext const current : {own, CUcontext{}}) {
      for (CUstream const by_default : default_streams) {
        for (const MPI_Comm comm : {comm_, MPI_COMM_SELF}) {
          send_.fill(std::vector<int>(count, 1));
          receive_.fill(std::vector<int>(count, 0));
          CROSSLANE_CUDA(cuCtxSetCurrent(current));
          CROSSLANE_MPI(sum_on(by_default, comm));
          CROSSLANE_CUDA(cuCtxSetCurrent(own));
          // Asked rather than waited for, so that other ranks of the machine may run.
          while (cuStreamQuery(by_default) == CUDA_ERROR_NOT_READY) sched_yield();
          const int sum = comm == comm_ ? program_.size : 1;
          CROSSLANE_CHECK(receive_.values<int>() == std::vector<int>(count, sum), "not all are {}", sum);
        }
      }
    }
  }
  int sum_on(CUstream stream, MPI_Comm comm) {
    return crosslane_allreduce_enqueue(send_.data(), receive_.data(), count, MPI_INT, MPI_SUM, comm, stream);
  }

  // A prepared buffer that is freed, and another allocation that comes to lie there.
  void freed() {
    CROSSLANE_STEP("a prepared buffer is freed");
    CUdeviceptr first = 0;
    CROSSLANE_CUDA(cuMemAlloc(&first, 4 << 20));
    std::array<void*, 1> buffers{reinterpret_cast<void*>(first)};
    CROSSLANE_MPI(crosslane_prepare(comm_, 0, 1, buffers.data()));
    CROSSLANE_CUDA(cuMemFree(first));
    expect(allreduce(nullptr, buffers[0]), MPI_ERR_BUFFER, "argument recvbuf");
    expect(allreduce(nullptr, buffers[0]), MPI_ERR_BUFFER, "lies where there is no memory; was it freed?");
    CUdeviceptr second = 0;
    CROSSLANE_CUDA(cuMemAlloc(&second, 4 << 20));
    if (second == first) expect(allreduce(nullptr, buffers[0]), MPI_ERR_BUFFER, "was freed since");
    CROSSLANE_MPI(crosslane_prepare(comm_, 0, 0, nullptr));
    CROSSLANE_CUDA(cuMemFree(second));
  }

  static void count_errors_of(MPI_Comm communicator) {
    called = 0;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(count_errors, &handler);
    MPI_Comm_set_errhandler(communicator, handler);
    MPI_Errhandler_free(&handler);
  }

  // Of what is no communicator any more MPI tells itself: once. Open MPI may crash there.
  void freed_communicator() {
#ifndef CROSSLANE_TEST_MPI_OPENMPI
    CROSSLANE_STEP("a communicator is freed");
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const MPI_Comm gone = comm;
    MPI_Comm_free(&comm);
    count_errors_of(MPI_COMM_SELF);  // the one or the other hears of it, by the version
    count_errors_of(MPI_COMM_WORLD);
    int of_nobody = 0;
    const int plain = PMPI_Comm_size(gone, &of_nobody);  // in MPICH 5.0 success, once a handler has heard
    CROSSLANE_CHECK_EQUAL(called, 1);
    const auto check = [&](int code) {
      if (plain == MPI_SUCCESS)
        CROSSLANE_CHECK_EQUAL(code, MPI_SUCCESS);
      else
        expect(code, MPI_ERR_COMM, "");
    };
    int missing = 0;
    check(crosslane_status(gone, &missing));
    CROSSLANE_CHECK_EQUAL(called, 2);
    check(crosslane_prepare(gone, 0, 0, nullptr));
    CROSSLANE_CHECK_EQUAL(called, 3);
    check(sum_on(stream_.handle(), gone));
    CROSSLANE_CHECK_EQUAL(called, 4);
    returns_errors(MPI_COMM_WORLD);
    returns_errors(MPI_COMM_SELF);
#endif
  }

  // Errors go to the communicator's handler.
  void other_handler() {
    count_errors_of(comm_);
    CROSSLANE_CHECK(allreduce(nullptr, nullptr, -1) != MPI_SUCCESS, "a negative count is accepted");
    CROSSLANE_CHECK_EQUAL(called, 1);
  }

  Program& program_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Memory send_{MemoryKind::device, bytes}, receive_{MemoryKind::device, bytes};
  Stream stream_;
};

// No rank can, and all are told why.
void refused(const Program& program) {
  const Memory own(MemoryKind::device, bytes);
  std::string told = program.text_option("told", "");
  std::ranges::replace(told, '.', ' ');
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  returns_errors(comm);
  for (int attempt = 0; attempt < 2; ++attempt) {
    CROSSLANE_STEP("attempt {}", attempt);
    std::array<void*, 1> buffers{own.data()};
    const int result = crosslane_prepare(comm, 0, 1, buffers.data());
    if (attempt == 1 && result == MPI_SUCCESS) break;  // what failed once need not fail again
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    CROSSLANE_CHECK(result != MPI_SUCCESS, "it is prepared");
    MPI_Error_string(result, text.data(), &length);
    const std::string message(text.data(), static_cast<std::size_t>(length));
    CROSSLANE_CHECK(message.find(told) != std::string::npos, "\"{}\" does not say \"{}\"", message, told);
    const Stream stream;
    CROSSLANE_CHECK(crosslane_broadcast_enqueue(own.data(), count, MPI_INT, 0, comm, stream.handle()) != MPI_SUCCESS,
                    "what is not prepared is used");
  }
  MPI_Comm_free(&comm);
}

// Rank 1 never enqueues its side, or fails as it does: rank 0's kernel gives up, which is told, and everything else goes on. Who failed refuses the
// next one, which would meet what is left of rank 0's.
void gives_up(Program& program, bool fails) {
  if (!can_prepare(program)) return;
  const auto arm = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "crosslane_emulated_arm"));
  if (fails && arm == nullptr) {
    program.skip("a real driver does not fail when it is told to");
    return;
  }
  MPI_Comm comm = MPI_COMM_NULL, next = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &next);
  returns_errors(comm);
  CROSSLANE_MPI(crosslane_prepare(comm, 0, 0, nullptr));
  Memory one(MemoryKind::device, sizeof(int));
  one.fill(std::vector<int>{1});
  const Stream stream;
  const auto sum = [&](MPI_Comm on) {
    return crosslane_allreduce_enqueue(MPI_IN_PLACE, one.data(), 1, MPI_INT, MPI_SUM, on, stream.handle());
  };
  if (program.rank == 0) {
    CROSSLANE_STEP("until the kernel gives up");
    CROSSLANE_MPI(sum(comm));
    while (missing(comm) < 0) sched_yield();
    CROSSLANE_CHECK_EQUAL(missing(comm), 1);
    stream.finish();
    expect(sum(comm), MPI_ERR_OTHER, "rank 1 of the communicator did not enqueue its side");
  } else if (fails) {
    CROSSLANE_STEP("an enqueue that fails");
    arm();
    expect(sum(comm), MPI_ERR_OTHER, "cuLaunchKernel");
    CROSSLANE_CHECK_EQUAL(missing(comm), 1);
    expect(sum(comm), MPI_ERR_OTHER, "rank 1 of the communicator did not enqueue its side");
  }
  polite_barrier();
  CROSSLANE_STEP("freeing the communicator");
  MPI_Comm_free(&comm);
  CROSSLANE_MPI(crosslane_prepare(next, 0, 0, nullptr));
  CROSSLANE_STEP("another communicator");
  one.fill(std::vector<int>{program.rank + 1});
  CROSSLANE_MPI(sum(next));
  stream.finish();
  CROSSLANE_CHECK_EQUAL(one.values<int>().front(), program.size * (program.size + 1) / 2);
  polite_barrier();
  MPI_Comm_free(&next);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_errors");
  const std::string what = program.text_option("what", "");
  if (what == "arguments") Arguments(program).run();
  if (what == "refused") refused(program);
  if (what == "gives_up" || what == "fails") gives_up(program, what == "fails");
  if (what == "in_turns") program.skip(can_prepare(program) ? "no two ranks take turns on a GPU" : "");
  return program.finish();
}
