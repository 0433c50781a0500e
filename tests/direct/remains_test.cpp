// A call that fails on a rank whose GPU has not begun by then what that rank has enqueued of it, since work of the application's is in front. The communicator
// is freed, and its ranks but that one make another: what begins late meets nothing of that; once it is over, what it could have met is used again.
//   --started 1  the call is a nonblocking one
#include "direct/parts.h"
#include "support/direct_calls.h"
#include "support/memory.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace crosslane::tests {
namespace {

// Of several launches, of each of which all ranks must have begun theirs before any reads others' parts.
constexpr int count = 1'300'000;
constexpr std::size_t bytes = count * sizeof(int);

// Work that keeps a rank's GPU from what comes behind it: all streams share one hardware queue (the settings').
class Blockade {
 public:
  Blockade() {
    CROSSLANE_CUDA(cuMemHostAlloc(&memory_, sizeof(std::atomic<std::uint64_t>), CU_MEMHOSTALLOC_DEVICEMAP));
    CROSSLANE_CUDA(cuMemHostGetDevicePointer(&address_, memory_, 0));
    word_ = new (memory_) std::atomic<std::uint64_t>(0);
    CROSSLANE_CUDA(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  ~Blockade() {
    cuStreamDestroy(stream_);
    cuMemFreeHost(memory_);
  }
  Blockade(const Blockade&) = delete;
  Blockade& operator=(const Blockade&) = delete;
  void begin() { CROSSLANE_CUDA(cuStreamWaitValue64(stream_, address_, 1, CU_STREAM_WAIT_VALUE_GEQ)); }
  void end() { word_->store(1); }

 private:
  void* memory_ = nullptr;
  CUdeviceptr address_ = 0;
  std::atomic<std::uint64_t>* word_ = nullptr;
  CUstream stream_ = nullptr;
};

class Sums {
 public:
  // Right ones, `calls` times; returns how many went direct. `phase`: tells them from others.
  std::int64_t run(MPI_Comm communicator, std::uint32_t phase, std::uint32_t calls) {
    int rank = 0, size = 0;
    CROSSLANE_MPI(MPI_Comm_rank(communicator, &rank));
    CROSSLANE_MPI(MPI_Comm_size(communicator, &size));
    const std::int64_t before = direct_calls("allreduce");
    for (std::uint32_t call = 0; call < calls; ++call) {
      CROSSLANE_STEP("phase {}, sum {} of {} ranks", phase, call, size);
      // What member m has at i: nothing of it is there in another call.
      const auto value = [=](int m, int i) {
        return static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(m + 1) + (phase << 8 | call) * 7919U;
      };
      std::vector<std::uint32_t> own(count), sum(count);
      for (int i = 0; i < count; ++i) {
        own[static_cast<std::size_t>(i)] = value(rank, i);
        for (int m = 0; m < size; ++m) sum[static_cast<std::size_t>(i)] += value(m, i);
      }
      data_.fill(own);
      CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, data_.data(), count, MPI_UINT32_T, MPI_SUM, communicator));
      CROSSLANE_CHECK(data_.values<std::uint32_t>() == sum, "a sum is wrong");
    }
    return direct_calls("allreduce") - before;
  }

  void fail(MPI_Comm communicator, bool started) {
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int code = MPI_SUCCESS;
    if (!started) {
      code = MPI_Allreduce(MPI_IN_PLACE, data_.data(), count, MPI_UINT32_T, MPI_SUM, communicator);
    } else {
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Iallreduce(MPI_IN_PLACE, data_.data(), count, MPI_UINT32_T, MPI_SUM, communicator, &request));
      code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    CROSSLANE_CHECK(code != MPI_SUCCESS, "no error");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  }

  void look_at_gpu() { static_cast<void>(data_.values<std::uint32_t>()); }

 private:
  Memory data_{MemoryKind::device, bytes};
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CROSSLANE_CUDA(cuMemGetInfo(&free, &total));
  return free;
}

void late(Program& program) {
  const auto arm = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "crosslane_emulated_arm"));
  if (arm == nullptr) return program.skip("a launch that fails on demand takes an emulated GPU");
  constexpr std::uint32_t to_connect = 8;
  const bool last = program.rank + 1 == program.size;
  Sums sums;
  Blockade blockade;
  sums.run(MPI_COMM_WORLD, 0, to_connect);
  // There the last rank is a member that the others' next communicator has, too, and has had more calls than that one will.
  MPI_Comm failing = MPI_COMM_NULL, others = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &failing));
  CROSSLANE_CHECK(sums.run(failing, 1, to_connect + 12) > 12, "the sums do not go direct");
  if (last) blockade.begin();
  arm();
  CROSSLANE_STEP("a call that the last rank cannot enqueue all of");
  sums.fail(failing, program.option("started", 0) != 0);
  CROSSLANE_STEP("freeing its communicator");
  CROSSLANE_MPI(MPI_Comm_free(&failing));
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, last ? MPI_UNDEFINED : 0, program.rank, &others));
  if (!last) sums.run(others, 2, to_connect);
  polite_barrier();
  CROSSLANE_STEP("what was enqueued begins");
  if (last) {
    blockade.end();
    sums.look_at_gpu();
  }
  polite_barrier();
  if (!last) {
    CROSSLANE_CHECK(sums.run(others, 3, 10) == 10, "the sums do not go direct");
    CROSSLANE_MPI(MPI_Comm_free(&others));
  }
  // Each rank hears of it when it next makes communicators. Then there is room for two in what the window has.
  const std::size_t before = free_bytes();
  for (int times = 0; times < 20; ++times) {
    MPI_Comm made = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &made));
    polite_barrier();
    CROSSLANE_MPI(MPI_Comm_free(&made));
  }
  std::vector<MPI_Comm> made(3, MPI_COMM_NULL);
  for (MPI_Comm& each : made) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &each));
    CROSSLANE_CHECK(sums.run(each, 4, to_connect) > 0, "the sums do not go direct");
  }
  CROSSLANE_CHECK(free_bytes() + bytes >= before, "the window has grown by {} bytes", before - free_bytes());
  for (MPI_Comm& each : made) CROSSLANE_MPI(MPI_Comm_free(&each));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  return run_part(argc, argv, "direct_remains", {{.name = "late", .run = late, .before = only_last_rank_fails}});
}
