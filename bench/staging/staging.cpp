// How near device-to-device messages between two ranks come to what they are made of: a copy between GPU and pinned
// host memory, and the MPI's own message between host buffers; and what it gives that a call which waits overlaps them, beside
// a nonblocking send, which copies the whole first. All columns in one process and one run, in turns, and
// verified. Start two ranks with Crosslane preloaded.
#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// One rank's memory for the largest size.
struct Memory {
  explicit Memory(std::size_t bytes) : device(bytes), pinned(bytes), pageable(bytes, std::byte{1}) {}
  DeviceBuffer device;
  PinnedBuffer pinned;
  std::vector<std::byte> pageable;
};

/// Ways to move bytes: a message to the other rank and back, or a copy between rank 0's own memories.
enum Column : std::size_t { crosslane, whole, plain_pageable, plain_pinned, to_host, to_gpu };
constexpr std::array<std::string_view, 6> names{"device, Crosslane", "device, whole",      "pageable, plain MPI",
                                                "pinned, plain MPI", "copy GPU to pinned", "copy pinned to GPU"};

class Benchmark {
 public:
  Benchmark(const Options& options, int rank)
      : rank_(rank),
        runs_(static_cast<int>(options.number("--runs"))),
        device_(rank),
        csv_(rank == 0 ? options.text("--csv") : "", {"staging", gpu()},
             {"column", "bytes", "run", "seconds_one_way"}) {}

  /// The ratio at 64 MiB, or at the first size where 64 is not among them.
  double run(const std::vector<long>& sizes) {
    Memory memory(static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end())) * mebibyte);
    if (rank_ == 0) {
      fmt::print(stdout, "staging: {}, {}, {}; GB/s one way, medians of {} runs\n", processor(), gpu(), mpi_version(),
                 runs_);
      fmt::print(stdout, "{:>6}", "MiB");
      for (const auto name : names) fmt::print(stdout, " {:>20}", name);
      fmt::print(stdout, " {:>7}\n", "ratio");
    }
    double result = 0;
    for (const long size : sizes) {
      const double ratio = one_size(memory, static_cast<std::size_t>(size) * mebibyte);
      if (size == 64 || result == 0) result = ratio;
    }
    return result;
  }

 private:
  double one_size(Memory& memory, std::size_t bytes) {
    verify(memory, bytes);
    const auto seconds = in_turns(
        names.size(), runs_, [&](std::size_t column) { return once(static_cast<Column>(column), memory, bytes); },
        [&](std::size_t column, int run, double time) {
          csv_.row(
              {std::string(names[column]), std::to_string(bytes), std::to_string(run), fmt::format("{:.9f}", time)});
        });
    std::array<double, names.size()> rate{};
    std::transform(seconds.begin(), seconds.end(), rate.begin(),
                   [&](const auto& times) { return static_cast<double>(bytes) / median(times) / 1e9; });
    // The hardest of the possible bars: the faster of MPI's two host rates, and each copy alone on an idle GPU.
    const double mpi = std::max(rate[plain_pageable], rate[plain_pinned]);
    const double ratio = rate[crosslane] / std::min({mpi, rate[to_host], rate[to_gpu]});
    if (rank_ == 0) {
      fmt::print(stdout, "{:6}", bytes / mebibyte);
      for (const double value : rate) fmt::print(stdout, " {:20.2f}", value);
      fmt::print(stdout, " {:7.2f}\n", ratio);
      std::fflush(stdout);
    }
    return ratio;
  }

  /// Seconds for one way, the slowest rank's.
  double once(Column column, Memory& memory, std::size_t bytes) const {
    const int ways = column == to_host || column == to_gpu ? 1 : 2;
    return seconds_of(1,
                      [&] {
                        if (column == crosslane) ping_pong(bound_, memory.device.pointer(), bytes);
                        if (column == whole) ping_pong(bound_, memory.device.pointer(), bytes, false);
                        if (column == plain_pageable) ping_pong(plain_, memory.pageable.data(), bytes);
                        if (column == plain_pinned) ping_pong(plain_, memory.pinned.data(), bytes);
                        if (ways == 1 && rank_ == 0) copy(column, memory, bytes);
                      }) /
           ways;
  }

  void copy(Column column, Memory& memory, std::size_t bytes) const {
    const auto device = memory.device.address();
    if (column == to_host)
      check(cuMemcpyDtoHAsync(memory.pinned.data(), device, bytes, device_.stream()), "cuMemcpyDtoHAsync");
    else
      check(cuMemcpyHtoDAsync(device, memory.pinned.data(), bytes, device_.stream()), "cuMemcpyHtoDAsync");
    device_.wait();
  }

  /// `at_once`: the send waits, else it is started first.
  void ping_pong(const Calls& mpi, void* buffer, std::size_t bytes, bool at_once = true) const {
    const int count = static_cast<int>(bytes / sizeof(double));
    const auto send = [&] {
      if (at_once) {
        mpi.send(buffer, count, MPI_DOUBLE, 1 - rank_, 0, MPI_COMM_WORLD);
        return;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      mpi.isend(buffer, count, MPI_DOUBLE, 1 - rank_, 0, MPI_COMM_WORLD, &request);
      mpi.waitall(1, &request, MPI_STATUSES_IGNORE);
    };
    if (rank_ == 0) send();
    mpi.recv(buffer, count, MPI_DOUBLE, 1 - rank_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) send();
  }

  /// What rank 0 wrote stands on rank 1's GPU after a message, and on rank 0's own, which was cleared, after the next.
  void verify(const Memory& memory, std::size_t bytes) const {
    std::vector<std::uint32_t> sent(bytes / sizeof(std::uint32_t));
    auto state = 1U + static_cast<std::uint32_t>(bytes);
    for (auto& word : sent) word = state = state * 1664525U + 1013904223U;
    std::vector<std::uint32_t> got(sent.size());
    const auto fill = [&](const std::vector<std::uint32_t>& words) {
      check(cuMemcpyHtoD(memory.device.address(), words.data(), bytes), "cuMemcpyHtoD");
      check(cuCtxSynchronize(), "cuCtxSynchronize");
    };
    const int count = static_cast<int>(bytes / sizeof(double));
    fill(rank_ == 0 ? sent : got);
    if (rank_ == 0) bound_.send(memory.device.pointer(), count, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD);
    if (rank_ == 0) fill(got);
    bound_.recv(memory.device.pointer(), count, MPI_DOUBLE, 1 - rank_, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) bound_.send(memory.device.pointer(), count, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    check(cuMemcpyDtoH(got.data(), memory.device.address(), bytes), "cuMemcpyDtoH");
    demand_everywhere(got == sent, fmt::format("{} bytes arrived wrong", bytes));
  }

  [[nodiscard]] std::string gpu() const { return fmt::format("{} x {}", device_.count(), device_.name()); }

  const int rank_;
  const int runs_;
  const Device device_;
  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  Csv csv_;
};

void run(int count, char** words) {
  const Options options(count, words, {{"--csv", ""}, {"--runs", "7"}, {"--sizes", "1,4,16,64,256"}});
  const World world = World::find();
  if (world.ranks != 2) throw std::runtime_error("start two ranks");
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  const double ratio = Benchmark(options, world.rank).run(options.numbers("--sizes"));
  if (world.rank == 0)
    fmt::print(stdout,
               "staging: {:.2f} of the slower of the pinned copies' and plain MPI's rate (target: 0.80 at 64 MiB)\n",
               ratio);
}

}  // namespace

int main(int count, char** words) { return mpi_program("staging", count, words, run); }
