// Messages between the GPU memories of two ranks, as benchmarks of MPIs measure them: latency (half a ping-pong), bandwidth (a window of
// nonblocking messages one way), and both ways at once; beside what the hardware does: one copy by the copy engine to the other
// rank's memory, opened over CUDA IPC; and beside the same messages by hand (copy to pinned memory, plain MPI, copy back).
// All columns in one process and one run, in turns, and verified. Start two ranks with Crosslane preloaded.
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"
#include "operation/device.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr int window = 8;

/// What is measured, each one way of moving bytes between the two ranks.
enum Column : std::size_t { latency, by_hand, copy, one_way, copies_one_way, both_ways, copies_both_ways, columns };
constexpr std::array<std::string_view, columns> names{
    "latency", "latency by hand", "latency, one copy", "one way", "one way, copies", "both ways", "both ways, copies"};

class Benchmark {
 public:
  Benchmark(const Options& options, int rank)
      : rank_(rank),
        runs_(static_cast<int>(options.number("--runs"))),
        most_repeats_(static_cast<int>(options.number("--repeats"))),
        sizes_(options.numbers("--sizes")),
        device_(rank),
        csv_(rank == 0 ? options.text("--csv") : "",
             {"messages", fmt::format("{} x {}", device_.count(), device_.name())},
             {"column", "bytes", "run", "seconds"}),
        most_(static_cast<std::size_t>(*std::max_element(sizes_.begin(), sizes_.end()))),
        sends_(most_ * window),
        receives_(most_ * window),
        pinned_(most_) {
    CUipcMemHandle mine{}, theirs{};
    check(cuIpcGetMemHandle(&mine, receives_.address()), "cuIpcGetMemHandle");
    plain_.sendrecv(&mine, sizeof mine, MPI_BYTE, 1 - rank_, 0, &theirs, sizeof theirs, MPI_BYTE, 1 - rank_, 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(cuIpcOpenMemHandle(&other_, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  }
  ~Benchmark() { cuIpcCloseMemHandle(other_); }
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  void run() {
    if (rank_ == 0) {
      fmt::print(stdout, "messages: {}, {} x {}, {}; medians of {} runs; latency in us, rates in GB/s one direction\n",
                 processor(), device_.count(), device_.name(), mpi_version(), runs_);
      fmt::print(stdout, "{:>10}", "bytes");
      for (const auto name : names) fmt::print(stdout, " {:>17}", name);
      fmt::print(stdout, "\n");
    }
    for (const long size : sizes_) one_size(static_cast<std::size_t>(size));
  }

 private:
  void one_size(std::size_t bytes) {
    verify(bytes);
    const int repeats = std::clamp(static_cast<int>((std::size_t{64} << 20) / bytes), 2, most_repeats_);
    std::array<std::vector<double>, columns> seconds;
    for (int run = -1; run < runs_; ++run) {  // the first warms up
      for (std::size_t i = 0; i < columns; ++i) {
        // Who goes first changes from run to run.
        const std::size_t column = (i + static_cast<std::size_t>(run + 1)) % columns;
        const double time = once(static_cast<Column>(column), bytes, repeats);
        if (run < 0) continue;
        seconds[column].push_back(time);
        csv_.row({std::string(names[column]), std::to_string(bytes), std::to_string(run), fmt::format("{:.9f}", time)});
      }
    }
    if (rank_ != 0) return;
    fmt::print(stdout, "{:10}", bytes);
    for (std::size_t column = 0; column < columns; ++column) {
      const double time = median(seconds[column]);
      fmt::print(stdout, " {:17.2f}", column <= copy ? time * 1e6 : static_cast<double>(bytes) / time / 1e9);
    }
    fmt::print(stdout, "\n");
    std::fflush(stdout);
  }

  /// Seconds a message, the slower rank's.
  double once(Column column, std::size_t bytes, int repeats) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begun = now_ns();
    int messages = repeats;
    switch (column) {
      case latency:
      case by_hand:
        for (int i = 0; i < repeats; ++i) ping_pong(column == by_hand, bytes);
        messages *= 2;
        break;
      case copy:
        for (int i = 0; rank_ == 0 && i < repeats; ++i) copy_over(0, bytes, true);
        break;
      case one_way:
      case both_ways:
        for (int i = 0; i < repeats; ++i) messages_at_once(column == both_ways, bytes);
        messages *= window;
        break;
      default:
        for (int i = 0; i < repeats && (rank_ == 0 || column == copies_both_ways); ++i) {
          for (int one = 0; one < window; ++one) copy_over(static_cast<std::size_t>(one), bytes, false);
          device_.wait();
        }
        messages *= window;
    }
    double seconds = static_cast<double>(now_ns() - begun) / 1e9 / messages;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
  }

  void ping_pong(bool hand, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    const auto send = [&] {
      if (hand) {
        check(cuMemcpyDtoHAsync(pinned_.data(), sends_.address(), bytes, device_.stream()), "cuMemcpyDtoHAsync");
        device_.wait();
      }
      const Calls& mpi = hand ? plain_ : bound_;
      mpi.send(hand ? pinned_.data() : sends_.pointer(), count, MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD);
    };
    const auto receive = [&] {
      const Calls& mpi = hand ? plain_ : bound_;
      mpi.recv(hand ? pinned_.data() : receives_.pointer(), count, MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      if (!hand) return;
      check(cuMemcpyHtoDAsync(receives_.address(), pinned_.data(), bytes, device_.stream()), "cuMemcpyHtoDAsync");
      device_.wait();
    };
    if (rank_ == 0) send();
    receive();
    if (rank_ == 1) send();
  }

  void copy_over(std::size_t which, std::size_t bytes, bool wait) {
    check(cuMemcpyAsync(other_ + which * bytes, sends_.address() + which * bytes, bytes, device_.stream()),
          "cuMemcpyAsync");
    if (wait) device_.wait();
  }

  void messages_at_once(bool both, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    std::vector<MPI_Request> requests;
    for (int i = 0; i < window; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      if (rank_ == 1 || both)
        bound_.irecv(static_cast<std::byte*>(receives_.pointer()) + at, count, MPI_BYTE, 1 - rank_, i, MPI_COMM_WORLD,
                     &requests.emplace_back());
    }
    for (int i = 0; i < window; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      if (rank_ == 0 || both)
        bound_.isend(static_cast<std::byte*>(sends_.pointer()) + at, count, MPI_BYTE, 1 - rank_, i, MPI_COMM_WORLD,
                     &requests.emplace_back());
    }
    bound_.waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    // The sender hears that all have arrived.
    char word = 0;
    if (rank_ == 0) plain_.recv(&word, 1, MPI_BYTE, 1, window, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) plain_.send(&word, 1, MPI_BYTE, 0, window, MPI_COMM_WORLD);
  }

  /// What each rank wrote stands on the other's GPU, which was cleared, after a window of messages both ways.
  void verify(std::size_t bytes) {
    const auto words_of = [&](int rank) {
      std::vector<std::uint8_t> words(bytes * window);
      std::uint32_t state = 1U + static_cast<std::uint32_t>(bytes) + static_cast<std::uint32_t>(rank) * 77777U;
      for (auto& word : words) word = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24U);
      return words;
    };
    const auto mine = words_of(rank_), theirs = words_of(1 - rank_);
    std::vector<std::uint8_t> got(mine.size());
    check(cuMemcpyHtoD(sends_.address(), mine.data(), mine.size()), "cuMemcpyHtoD");
    check(cuMemcpyHtoD(receives_.address(), got.data(), got.size()), "cuMemcpyHtoD");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    messages_at_once(true, bytes);
    check(cuMemcpyDtoH(got.data(), receives_.address(), got.size()), "cuMemcpyDtoH");
    int wrong = got == theirs ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (wrong != 0) throw std::runtime_error(fmt::format("{} bytes arrived wrong", bytes));
  }

  const int rank_;
  const int runs_;
  const int most_repeats_;
  const std::vector<long> sizes_;
  const Device device_;
  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  Csv csv_;
  const std::size_t most_;
  DeviceBuffer sends_, receives_;
  PinnedBuffer pinned_;
  CUdeviceptr other_ = 0;
};

void run(int count, char** words) {
  const Options options(count, words,
                        {{"--csv", ""},
                         {"--runs", "7"},
                         {"--repeats", "100"},
                         {"--sizes", "8,1024,4096,32768,262144,1048576,4194304,16777216,67108864,268435456"}});
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) throw std::runtime_error("start two ranks");
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark(options, rank).run();
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  try {
    run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "messages: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return 0;
}
