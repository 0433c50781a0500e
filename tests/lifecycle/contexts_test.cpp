// A program that ends CUDA contexts between its communication, and goes on with others: everything gets through, whatever it
// went by before. Ranks end theirs at random; what one of them still has, the others use.
#include "support/memory.h"
#include "support/program.h"
#include "support/random.h"

#include <cuda.h>
#include <mpi.h>

#include <array>
#include <optional>
#include <vector>

namespace crosslane::tests {
namespace {

// What ends it: cuDevicePrimaryCtxReset (what cudaDeviceReset does), the last cuDevicePrimaryCtxRelease, or cuCtxDestroy.
enum class End { reset, release, destroy };

// A context that is current while this lives, and two buffers in it.
class Place {
 public:
  Place(CUdevice device, End end, std::size_t bytes) : device_(device), end_(end) {
    if (end == End::destroy) {
#if CUDA_VERSION >= 13000
      CROSSLANE_CUDA(cuCtxCreate(&context_, nullptr, 0, device));
#else
      CROSSLANE_CUDA(cuCtxCreate(&context_, 0, device));
#endif
    } else {
      CROSSLANE_CUDA(cuDevicePrimaryCtxRetain(&context_, device));
      CROSSLANE_CUDA(cuCtxPushCurrent(context_));
    }
    CROSSLANE_CUDA(cuMemAlloc(&send_, bytes));
    CROSSLANE_CUDA(cuMemAlloc(&receive_, bytes));
    CUcontext popped = nullptr;
    CROSSLANE_CUDA(cuCtxPopCurrent(&popped));
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (end_ == End::destroy) {
      CROSSLANE_CUDA(cuCtxDestroy(context_));
      return;
    }
    if (end_ == End::reset) CROSSLANE_CUDA(cuDevicePrimaryCtxReset(device_));
    CROSSLANE_CUDA(cuDevicePrimaryCtxRelease(device_));
  }

  [[nodiscard]] CUdeviceptr send() const { return send_; }
  [[nodiscard]] CUdeviceptr receive() const { return receive_; }
  void fill(const std::vector<int>& values) const {
    const Current current(context_);
    CROSSLANE_CUDA(cuMemcpyHtoD(send_, values.data(), values.size() * sizeof(int)));
    CROSSLANE_CUDA(cuMemsetD8(receive_, 0xee, values.size() * sizeof(int)));
    CROSSLANE_CUDA(cuCtxSynchronize());
  }
  [[nodiscard]] std::vector<int> received(std::size_t count) const {
    const Current current(context_);
    std::vector<int> values(count);
    CROSSLANE_CUDA(cuMemcpyDtoH(values.data(), receive_, count * sizeof(int)));
    return values;
  }

 private:
  struct Current {
    explicit Current(CUcontext context) { CROSSLANE_CUDA(cuCtxPushCurrent(context)); }
    ~Current() {
      CUcontext popped = nullptr;
      CROSSLANE_CUDA(cuCtxPopCurrent(&popped));
    }
  };
  CUdevice device_;
  End end_;
  CUcontext context_ = nullptr;
  CUdeviceptr send_ = 0, receive_ = 0;
};

class Ring {
 public:
  explicit Ring(Program& program) : program_(program) { CROSSLANE_CUDA(cuDeviceGetCount(&gpus_)); }

  void run(int rounds) {
    std::optional<Place> place;
    for (round_ = 0; round_ < rounds; ++round_) {
      if (!place) {
        const auto end = static_cast<End>(program_.local().between(0, 2));
        const int device = program_.local().between(0, gpus_ - 1);
        place.emplace(device, end, largest * sizeof(int));
      }
      for (const std::size_t count : {std::size_t{3}, std::size_t{1024}, std::size_t{20000}, largest}) {
        CROSSLANE_STEP("round {}, {} ints", round_, count);
        communicate(*place, count);
      }
      restart(*place);
      // Others may still read what was sent.
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      if (program_.local().chance(70)) place.reset();
      between(place);
    }
  }

 private:
  static constexpr std::size_t largest = 600000;

  [[nodiscard]] int left() const { return (program_.rank + program_.size - 1) % program_.size; }
  [[nodiscard]] int right() const { return (program_.rank + 1) % program_.size; }
  [[nodiscard]] std::vector<int> mine(int rank, std::size_t count) const {
    std::vector<int> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) + 1000 * rank + 17 * round_;
    return values;
  }
  [[nodiscard]] std::vector<int> sums(std::size_t count) const {
    std::vector<int> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = program_.size * (static_cast<int>(i) + 17 * round_) + 1000 * program_.size * (program_.size - 1) / 2;
    return values;
  }

  void communicate(const Place& place, std::size_t count) {
    auto* const send = reinterpret_cast<void*>(place.send());
    auto* const receive = reinterpret_cast<void*>(place.receive());
    const int ints = static_cast<int>(count);
    place.fill(mine(program_.rank, count));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(receive, ints, MPI_INT, left(), 1, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Send(send, ints, MPI_INT, right(), 1, MPI_COMM_WORLD));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(place.received(count) == mine(left(), count), "a message between GPUs");

    // Every second rank's columns: the sender packs them, or the receiver reads them.
    MPI_Datatype column = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_vector(ints / 2, 1, 2, MPI_INT, &column));
    CROSSLANE_MPI(MPI_Type_commit(&column));
    place.fill(mine(program_.rank, count));
    CROSSLANE_MPI(MPI_Sendrecv(send, 1, column, right(), 2, receive, ints / 2, MPI_INT, left(), 2, MPI_COMM_WORLD,
                               MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Type_free(&column));
    const auto columns = place.received(count / 2), all = mine(left(), count);
    bool right_columns = true;
    for (std::size_t i = 0; i < columns.size(); ++i) right_columns = right_columns && columns[i] == all[2 * i];
    CROSSLANE_CHECK(right_columns, "columns");

    place.fill(mine(program_.rank, count));
    CROSSLANE_MPI(MPI_Allreduce(send, receive, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CROSSLANE_CHECK(place.received(count) == sums(count), "a sum");
    place.fill(mine(program_.rank, count));
    CROSSLANE_MPI(MPI_Iallreduce(send, receive, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(place.received(count) == sums(count), "a sum that was started");
    to_host(place, count);
  }

  // Rank by rank: to a receiver whose buffer is the host's, whatever became of its GPU.
  void to_host(const Place& place, std::size_t count) {
    std::vector<int> got(count);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(got.data(), static_cast<int>(count), MPI_INT, left(), 3, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(
        MPI_Send(reinterpret_cast<void*>(place.send()), static_cast<int>(count), MPI_INT, right(), 3, MPI_COMM_WORLD));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(got == mine(left(), count), "a message to the host");
  }

  // After some have ended their contexts: messages from the GPUs of those that have not.
  void between(const std::optional<Place>& place) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{2000}, largest}) {
      CROSSLANE_STEP("round {}, between, {} ints", round_, count);
      const int ints = static_cast<int>(count);
      std::vector<int> got(count), values = mine(program_.rank, count);
      if (place) place->fill(values);
      const void* const send = place ? reinterpret_cast<const void*>(place->send()) : values.data();
      CROSSLANE_MPI(MPI_Sendrecv(send, ints, MPI_INT, right(), 4, got.data(), ints, MPI_INT, left(), 4, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(got == mine(left(), count), "a message between contexts");
      CROSSLANE_MPI(MPI_Allreduce(send, got.data(), ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
      CROSSLANE_CHECK(got == sums(count), "a sum between contexts");
    }
  }

  // Requests that were made with memory of a context that has ended since.
  void restart(const Place& place) {
    CROSSLANE_STEP("round {}, persistent", round_);
    std::array<MPI_Request, 2> requests{};
    place.fill(mine(program_.rank, 5000));
    CROSSLANE_MPI(
        MPI_Send_init(reinterpret_cast<void*>(place.send()), 5000, MPI_INT, right(), 5, MPI_COMM_WORLD, &requests[0]));
    CROSSLANE_MPI(MPI_Recv_init(reinterpret_cast<void*>(place.receive()), 5000, MPI_INT, left(), 5, MPI_COMM_WORLD,
                                &requests[1]));
    for (int start = 0; start < 2; ++start) {
      CROSSLANE_MPI(MPI_Startall(2, requests.data()));
      CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
      CROSSLANE_CHECK(place.received(5000) == mine(left(), 5000), "start {}", start);
    }
    for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  Program& program_;
  int gpus_ = 0;
  int round_ = 0;
};

// A persistent request outlives the context: an error, not a crash.
void left_over() {
  CROSSLANE_STEP("a communicator of its own");
  MPI_Comm own = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_SELF, &own));
  CROSSLANE_MPI(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
  for (const End end : {End::reset, End::destroy}) {
    std::array<MPI_Request, 2> requests{};
    // A context each, which takes its time where many programs make some.
    CROSSLANE_STEP("end {}: persistent requests", static_cast<int>(end));
    {
      const Place place(0, end, 40000);
      CROSSLANE_MPI(MPI_Send_init(reinterpret_cast<void*>(place.send()), 40000, MPI_BYTE, 0, 0, own, &requests[0]));
      CROSSLANE_MPI(MPI_Recv_init(reinterpret_cast<void*>(place.receive()), 40000, MPI_BYTE, 0, 0, own, &requests[1]));
    }
    // What is pinned now may lie where their host copies lay.
    const auto others = [&](const char* when) {
      CROSSLANE_STEP("end {}: others {}", static_cast<int>(end), when);
      const Place place(0, end, 40000);
      const std::vector<int> values(10000, 7);
      place.fill(values);
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Irecv(reinterpret_cast<void*>(place.receive()), 10000, MPI_INT, 0, 1, own, &request));
      CROSSLANE_MPI(MPI_Send(reinterpret_cast<void*>(place.send()), 10000, MPI_INT, 0, 1, own));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(place.received(10000) == values, "beside requests of an ended context");
    };
    others("before they are started");
    CROSSLANE_STEP("end {}: a start behind the context's", static_cast<int>(end));
    for (auto& request : requests) {
      int error_class = MPI_SUCCESS;
      CROSSLANE_MPI(MPI_Error_class(MPI_Start(&request), &error_class));
      CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_BUFFER);
      CROSSLANE_MPI(MPI_Request_free(&request));
    }
    others("behind them");
  }
  CROSSLANE_STEP("the communicator's end");
  CROSSLANE_MPI(MPI_Comm_free(&own));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_contexts");
  CROSSLANE_CUDA(cuInit(0));
  left_over();
  Ring(program).run(static_cast<int>(program.option("rounds", 8)));
  return program.finish();
}
