// A program that ends its context under a nonblocking collective that it has started with host memory, while others pass GPU memory and one has yet to
// come: the call ends on all ranks, with the data or an error on each, nothing of the context is touched, and calls after it work.
#include "support/check.h"
#include "support/direct_calls.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/sharing.h"

#include <cuda.h>
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int count = direct_in_turns_from / sizeof(int);

class Ranks {
 public:
  explicit Ranks(Program& program) : program_(program) {
    int gpus = 0;
    CROSSLANE_CUDA(cuInit(0));
    CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
    CROSSLANE_CUDA(cuDeviceGet(&device_, program.rank % gpus));
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
  }
  ~Ranks() {
    MPI_Comm_free(&communicator_);
    if (has_context_) cuDevicePrimaryCtxRelease(device_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void take_context() {
    CUcontext context = nullptr;
    CROSSLANE_CUDA(cuDevicePrimaryCtxRetain(&context, device_));
    CROSSLANE_CUDA(cuCtxSetCurrent(context));
    CROSSLANE_CUDA(cuMemAlloc(&buffer_, count * sizeof(int)));
    has_context_ = true;
  }
  void end_context() {
    CROSSLANE_CUDA(cuCtxSetCurrent(nullptr));
    CROSSLANE_CUDA(cuDevicePrimaryCtxReset(device_));
    CROSSLANE_CUDA(cuDevicePrimaryCtxRelease(device_));
    has_context_ = false;
  }

  // All ranks pass GPU memory until the communicator goes direct.
  void connect() {
    std::int64_t before = 0;
    for (int round = 0; round < 8; ++round) {
      CROSSLANE_STEP("connecting, round {}", round);
      before = direct_calls("broadcast");
      fill(0, round);
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Ibcast(pointer(), count, MPI_INT, 0, communicator_, &request));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(content() == numbers(round), "round {}", round);
    }
    CROSSLANE_CHECK(before < 0 || direct_calls("broadcast") > before, "the broadcasts do not go direct");
  }

  // Rank 1 ends its context before the last rank comes, `early`, or once all have come.
  void under_a_call(int round, bool early) {
    CROSSLANE_STEP("a context ends {} the last rank comes", early ? "before" : "when");
    fill(0, round);
    std::vector<int> host(count);
    void* const buffer = program_.rank == 1 ? host.data() : pointer();
    MPI_Request request = MPI_REQUEST_NULL;
    const bool last = program_.rank == program_.size - 1;
    int word = 0;
    if (last && early) CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Ibcast(buffer, count, MPI_INT, 0, communicator_, &request));
    if (last && !early) CROSSLANE_MPI(MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
    if (program_.rank == 1) {
      if (!early) CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_INT, program_.size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      end_context();
      if (early) CROSSLANE_MPI(MPI_Send(&word, 1, MPI_INT, program_.size - 1, 0, MPI_COMM_WORLD));
    }
    const int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS)
      CROSSLANE_CHECK((program_.rank == 1 ? host : content()) == numbers(round), "no error, and not the data");
  }

  void sum_on_the_host() {
    CROSSLANE_STEP("a sum on the host");
    int sum = 1;
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, communicator_));
    CROSSLANE_CHECK(sum == program_.size, "the sum is {}", sum);
  }

 private:
  [[nodiscard]] void* pointer() const { return reinterpret_cast<void*>(buffer_); }
  static std::vector<int> numbers(int round) {
    std::vector<int> values(count);
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = 1000 * round + i;
    return values;
  }
  void fill(int root, int round) const {
    const auto values = program_.rank == root ? numbers(round) : std::vector<int>(count);
    CROSSLANE_CUDA(cuMemcpyHtoD(buffer_, values.data(), values.size() * sizeof(int)));
    CROSSLANE_CUDA(cuCtxSynchronize());
  }
  [[nodiscard]] std::vector<int> content() const {
    std::vector<int> values(count);
    CROSSLANE_CUDA(cuMemcpyDtoH(values.data(), buffer_, values.size() * sizeof(int)));
    return values;
  }

  Program& program_;
  CUdevice device_ = 0;
  CUdeviceptr buffer_ = 0;
  bool has_context_ = false;
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

int run(int argc, char** argv) {
  Program program(argc, argv, "lifecycle_ended");
  {
    Ranks ranks(program);
    ranks.take_context();
    ranks.connect();
    ranks.under_a_call(9, program.option("early", 1) != 0);
    ranks.sum_on_the_host();
  }
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
