// What a kernel that computes takes while its process exchanges messages or reduces arrays on the same GPU, whose kernels may stay for the next
// call (CROSSLANE_LINGER_US): alone, and beside exchanges one after the other. The kernels do a given amount of arithmetic, in many more blocks
// than run at once: of `whole` ones each takes a multiprocessor for itself, `small` ones fit in between. And what an exchange takes meanwhile: of
// those until three quarters of the kernels are over, since what comes behind the last kernel has the GPU for itself.
// Start one rank a GPU, with Crosslane preloaded.
//   bench_beside [--messages N,...] [--arrays N,...] [--runs N] [--csv FILE]
#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"
#include "kernels/images.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

struct Kind {
  const char* name;
  const char* kernel;
  unsigned threads, rounds;
  int blocks_a_multiprocessor;
};
constexpr std::array kinds{Kind{"whole", "crosslane_bench_work_whole", 1024, 400, 6},
                           Kind{"small", "crosslane_bench_work_small", 256, 700, 64}};
constexpr int kernels = 40;  // of which the middle half is timed: exchanges go on before and behind

/// What goes on beside the kernels.
struct Traffic {
  std::string name;
  bool reduces = false;
  std::size_t bytes = 0;  // 0: nothing
};

struct Times {
  double kernel = 0, exchange = 0;  // seconds
};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : rank_(world.rank),
        ranks_(world.ranks),
        runs_(static_cast<int>(options.number("--runs"))),
        device_(world.local),
        csv_(rank_ == 0 ? options.text("--csv") : "",
             {"beside", fmt::format("{} x {}", device_.count(), device_.name())},
             {"kernel", "traffic", "bytes", "ranks", "linger_us", "run", "kernel_seconds", "exchange_seconds"}),
        module_(work_image()),
        send_(most_of(options)),
        receive_(most_of(options)) {
    traffic_.push_back({"none", false, 0});
    for (const long bytes : options.numbers("--messages"))
      traffic_.push_back({"messages", false, static_cast<std::size_t>(bytes)});
    for (const long bytes : options.numbers("--arrays"))
      traffic_.push_back({"all-reduces", true, static_cast<std::size_t>(bytes)});
    check(cuMemsetD8(send_.address(), 0, send_.size()), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    for (auto& event : events_) check(cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate");
    check(cuDeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_.ordinal()),
          "cuDeviceGetAttribute");
  }
  ~Benchmark() {
    for (auto& event : events_) cuEventDestroy(event);
  }
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  void run() {
    const char* const setting = std::getenv("CROSSLANE_LINGER_US");
    linger_ = setting == nullptr ? "auto" : setting;
    if (rank_ == 0) {
      fmt::print(stdout,
                 "beside: {}, {} ranks on {} x {}, {}, CROSSLANE_LINGER_US={}; medians of {} runs, us;\n"
                 "exchanges beside the kernels, until three quarters of these are over\n",
                 processor(), ranks_, device_.count(), device_.name(), mpi_version(), linger_, runs_);
      fmt::print(stdout, "{:>8} {:>12} {:>9} {:>10} {:>8} {:>10} {:>10}\n", "kernel", "beside", "bytes", "a kernel",
                 "slower", "exchange", "alone");
    }
    for (const Kind& kind : kinds) table(kind);
  }

 private:
  static std::size_t most_of(const Options& options) {
    std::size_t most = 8;
    for (const char* name : {"--messages", "--arrays"})
      for (const long bytes : options.numbers(name)) most = std::max(most, static_cast<std::size_t>(bytes));
    return most;
  }

  void table(const Kind& kind) {
    std::vector<std::vector<Times>> times(traffic_.size());
    std::vector<double> alone(traffic_.size());
    for (std::size_t which = 1; which < traffic_.size(); ++which) alone[which] = exchange_alone(traffic_[which]);
    for (int run = 0; run <= runs_; ++run) {
      for (std::size_t which = 0; which < traffic_.size(); ++which) {
        const Times each = once(kind, traffic_[which], alone[which]);
        if (run == 0) continue;  // warms up
        times[which].push_back(each);
        csv_.row({kind.name, traffic_[which].name, std::to_string(traffic_[which].bytes), std::to_string(ranks_),
                  linger_, std::to_string(run), fmt::format("{:.9f}", each.kernel),
                  fmt::format("{:.9f}", each.exchange)});
      }
    }
    if (rank_ != 0) return;
    const auto median_of = [&](std::size_t which, double Times::* member) {
      std::vector<double> values;
      for (const Times& each : times[which]) values.push_back(each.*member);
      return median(values);
    };
    const double by_itself = median_of(0, &Times::kernel);
    for (std::size_t which = 0; which < traffic_.size(); ++which) {
      const double kernel = median_of(which, &Times::kernel);
      fmt::print(stdout, "{:>8} {:>12} {:>9} {:>10.1f} {:>8.3f} {:>10.1f} {:>10.1f}\n", kind.name, traffic_[which].name,
                 traffic_[which].bytes, kernel * 1e6, kernel / by_itself, median_of(which, &Times::exchange) * 1e6,
                 alone[which] * 1e6);
    }
    std::fflush(stdout);
  }

  // A message to the next rank and one from the one before, or a reduction over all.
  void exchange(const Traffic& what) {
    const int count = static_cast<int>(what.bytes);
    if (what.reduces) {
      bound_.allreduce(send_.pointer(), receive_.pointer(), count / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      return;
    }
    // A ping-pong of neighbours; the last of an odd number looks on.
    const int peer = rank_ ^ 1;
    if (peer >= ranks_) return;
    if (rank_ % 2 == 0) bound_.send(send_.pointer(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    bound_.recv(receive_.pointer(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ % 2 != 0) bound_.send(send_.pointer(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  }

  double exchange_alone(const Traffic& what) {
    static_cast<void>(seconds_of(50, [&] { exchange(what); }));
    return seconds_of(500, [&] { exchange(what); });
  }

  Times once(const Kind& kind, const Traffic& what, double alone) {
    // More of them than go by beside the kernels: if they are over first, twice as many.
    for (int exchanges = what.bytes == 0 ? 0 : static_cast<int>(0.03 / alone);; exchanges *= 2) {
      MPI_Barrier(MPI_COMM_WORLD);
      launch(kind);
      const auto begun = now_ns();
      // Asked now and then: a question to the driver is no part of what is timed.
      const int between = exchanges == 0 ? 1 : std::max(1, static_cast<int>(1e-4 / alone));
      bool over = exchanges == 0;
      double seconds = 0;
      for (int i = 1; i <= exchanges; ++i) {
        exchange(what);
        if (over || (i % between != 0 && i != exchanges)) continue;
        over = cuEventQuery(events_[1]) == CUDA_SUCCESS;
        seconds = static_cast<double>(now_ns() - begun) * 1e-9 / i;
      }
      check(cuStreamSynchronize(device_.stream()), "cuStreamSynchronize");
      if (most_of_all(over ? 0 : 1) != 0) continue;
      float milliseconds = 0;
      check(cuEventElapsedTime(&milliseconds, events_[0], events_[1]), "cuEventElapsedTime");
      return {most_of_all(milliseconds * 1e-3 / (kernels / 2)), most_of_all(seconds)};
    }
  }

  void launch(const Kind& kind) {
    unsigned rounds = kind.rounds;
    void* never = nullptr;
    std::array<void*, 2> arguments{&rounds, &never};
    const auto blocks = static_cast<unsigned>(multiprocessors_ * kind.blocks_a_multiprocessor);
    CUfunction const kernel = module_.function(kind.kernel);
    for (int i = 0; i < kernels; ++i) {
      if (i == kernels / 4) check(cuEventRecord(events_[0], device_.stream()), "cuEventRecord");
      if (i == kernels / 4 + kernels / 2) check(cuEventRecord(events_[1], device_.stream()), "cuEventRecord");
      check(cuLaunchKernel(kernel, blocks, 1, 1, kind.threads, 1, 1, 0, device_.stream(), arguments.data(), nullptr),
            "cuLaunchKernel");
    }
  }

  const int rank_, ranks_, runs_;
  const Device device_;
  const Calls bound_ = Calls::bound();
  Csv csv_;
  std::string linger_;
  std::vector<Traffic> traffic_;
  const Module module_;
  DeviceBuffer send_, receive_;
  std::array<CUevent, 2> events_{};
  int multiprocessors_ = 0;
};

void run(int count, char** words) {
  const Options options(
      count, words,
      {{"--csv", ""}, {"--runs", "5"}, {"--messages", "8,65536,1048576"}, {"--arrays", "8,32768,1048576"}});
  const World world = World::find();
  if (world.ranks < 2) throw std::runtime_error("start at least two ranks");
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  if (const std::string reason = no_kernels(); !reason.empty()) {
    if (world.rank == 0) fmt::print(stdout, "beside: left out, {}\n", reason);
    return;
  }
  Benchmark(options, world).run();
}

}  // namespace

int main(int count, char** words) { return mpi_program("beside", count, words, run); }
