// See busy.h.
#include "kernels/busy.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace crosslane::bench {
namespace {

constexpr unsigned threads = 1024;
constexpr int batch = 8;  // kernels between two looks at whether it is over

}  // namespace

Busy::Busy(const Device& device, int percent) {
  if (percent == 0) return;
  module_ = std::make_unique<Module>(busy_image());
  int multiprocessors = 0, resident = 0;
  check(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device.ordinal()),
        "cuDeviceGetAttribute");
  CUfunction const kernel = module_->function("crosslane_bench_busy");
  check(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (resident != 1) throw std::runtime_error("a block of the busy kernel is not what fills a multiprocessor");
  const auto blocks = static_cast<unsigned>(std::max(multiprocessors * percent / 100, 1));
  thread_ = std::thread([this, context = device.context(), kernel, blocks] { keep(context, kernel, blocks); });
  while (!runs_.load() && !ends_.load()) std::this_thread::yield();
}

Busy::~Busy() {
  ends_.store(true);
  if (thread_.joinable()) thread_.join();
}

void Busy::keep(CUcontext context, CUfunction kernel, unsigned blocks) {
  try {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    std::array<CUevent, 2> done{};
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (auto& event : done)
      check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
    unsigned long long nanoseconds = 50'000;
    void* never = nullptr;
    std::array<void*, 2> arguments{&nanoseconds, &never};
    for (std::size_t round = 0; !ends_.load(); ++round) {
      // One batch runs while the next is enqueued: the stream is never empty.
      for (int i = 0; i < batch; ++i)
        check(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.data(), nullptr),
              "cuLaunchKernel");
      check(cuEventRecord(done[round % 2], stream), "cuEventRecord");
      if (round == 0) continue;
      check(cuEventSynchronize(done[(round + 1) % 2]), "cuEventSynchronize");
      runs_.store(true);
    }
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (auto& event : done) cuEventDestroy(event);
    cuStreamDestroy(stream);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench: the busy kernel: %s\n", error.what());
    std::terminate();  // what is measured beside it would be measured beside nothing
  }
}

}  // namespace crosslane::bench
