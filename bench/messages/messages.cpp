// Messages between the GPU memories of two ranks, as benchmarks of MPIs measure them: latency (half a ping-pong), bandwidth (a window of
// nonblocking messages one way), and both ways at once; beside what the hardware does: one copy by the copy engine to the other
// rank's memory, opened over CUDA IPC; and beside the same messages by hand (copy to pinned memory, plain MPI, copy back).
// "MPI_Irecv", "MPI_Isend": what the host takes for each while a window both ways begins, which no message of it waits less than.
// All columns in one process and one run, in turns, and verified. Start an even number of ranks with Crosslane preloaded: two and two are pairs,
// and all pairs do the same at once.
//   bench_messages [--sizes N,...] [--window N] [--gpus N] [--runs N] [--repeats N] [--csv FILE] [--as NAME] [--beside FILE]
// --window: how many messages, or copies, begin before any is waited for; each has buffers of its own.
// --as NAME: without Crosslane, over an MPI that takes GPU memory itself: messages alone. --beside FILE shows what such a
// run of a moment ago, a peer's, has written to FILE.
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
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

/// What is measured, each one way of moving bytes between the two ranks.
enum Column : std::size_t {
  latency,
  by_hand,
  copy,
  one_way,
  copies_one_way,
  both_ways,
  copies_both_ways,
  irecv_call,
  isend_call,
  columns
};
constexpr std::array<std::string_view, columns> names{"latency",           "latency by hand", "latency, one copy",
                                                      "one way",           "one way, copies", "both ways",
                                                      "both ways, copies", "MPI_Irecv",       "MPI_Isend"};
constexpr std::array messages{latency, one_way, both_ways, irecv_call,
                              isend_call};  // what any MPI does that takes GPU memory

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : rank_(world.rank),
        ranks_(world.ranks),
        peer_(world.rank ^ 1),
        first_(world.rank % 2 == 0),
        runs_(static_cast<int>(options.number("--runs"))),
        window_(static_cast<int>(options.number("--window"))),
        as_(options.text("--as")),
        beside_(medians(options.text("--beside"), {"column", "bytes"}, "seconds")),
        shows_peer_(!options.text("--beside").empty()),
        most_repeats_(static_cast<int>(options.number("--repeats"))),
        sizes_(options.numbers("--sizes")),
        device_(world.local, static_cast<int>(options.number("--gpus"))),
        csv_(world.rank == 0 ? options.text("--csv") : "",
             {"messages", fmt::format("{} x {}", device_.count(), device_.name())},
             {"column", "ranks", "window", "bytes", "run", "seconds"}),
        most_(static_cast<std::size_t>(*std::max_element(sizes_.begin(), sizes_.end()))),
        sends_(most_ * static_cast<std::size_t>(window_)),
        receives_(most_ * static_cast<std::size_t>(window_)),
        pinned_(most_) {
    if (as_.empty())
      for (std::size_t column = 0; column < columns; ++column) measured_.push_back(static_cast<Column>(column));
    else
      measured_.assign(messages.begin(), messages.end());
    if (!as_.empty()) return;
    CUipcMemHandle mine{}, theirs{};
    check(cuIpcGetMemHandle(&mine, receives_.address()), "cuIpcGetMemHandle");
    plain_.sendrecv(&mine, sizeof mine, MPI_BYTE, peer_, 0, &theirs, sizeof theirs, MPI_BYTE, peer_, 0, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE);
    other_.emplace(theirs);
  }

  void run() {
    if (rank_ == 0) {
      fmt::print(stdout,
                 "messages: {}, {} ranks on {} x {}, {}{}; medians of {} runs; latency in us, rates in GB/s one "
                 "direction, of {} at once\n",
                 processor(), ranks_, device_.count(), device_.name(), mpi_version(), as_.empty() ? "" : ", " + as_,
                 runs_, window_);
      fmt::print(stdout, "{:>10}", "bytes");
      for (const auto column : measured_) fmt::print(stdout, " {:>17}", names[column]);
      if (shows_peer_)
        for (const auto column : messages) fmt::print(stdout, " {:>17}", "UCX, " + std::string(names[column]));
      fmt::print(stdout, "\n");
    }
    for (const long size : sizes_) one_size(static_cast<std::size_t>(size));
  }

 private:
  void one_size(std::size_t bytes) {
    verify(bytes);
    const int repeats = std::clamp(static_cast<int>((std::size_t{64} << 20) / bytes), 2, most_repeats_);
    const auto seconds = in_turns(
        measured_.size(), runs_, [&](std::size_t which) { return once(measured_[which], bytes, repeats); },
        [&](std::size_t which, int run, double time) {
          csv_.row({std::string(names[measured_[which]]), std::to_string(ranks_), std::to_string(window_),
                    std::to_string(bytes), std::to_string(run), fmt::format("{:.9f}", time)});
        });
    if (rank_ != 0) return;
    fmt::print(stdout, "{:10}", bytes);
    for (std::size_t which = 0; which < measured_.size(); ++which)
      cell(measured_[which], median(seconds[which]), bytes);
    for (const auto column : messages) {
      if (!shows_peer_) break;
      const auto found = beside_.find(fmt::format("{}/{}", names[column], bytes));
      if (found != beside_.end())
        cell(column, found->second, bytes);
      else
        fmt::print(stdout, " {:>17}", "-");
    }
    fmt::print(stdout, "\n");
    std::fflush(stdout);
  }

  static void cell(Column column, double seconds, std::size_t bytes) {
    const bool rate = column >= one_way && column <= copies_both_ways;
    fmt::print(stdout, " {:17.2f}", rate ? static_cast<double>(bytes) / seconds / 1e9 : seconds * 1e6);
  }

  /// Seconds a message, the slower rank's.
  double once(Column column, std::size_t bytes, int repeats) {
    if (column >= irecv_call) return host_seconds(column, bytes, repeats);
    const bool windows = column > copy;
    const double seconds = seconds_of(repeats, [&] {
      if (column == latency || column == by_hand)
        ping_pong(column == by_hand, bytes);
      else if (column == one_way || column == both_ways)
        messages_at_once(column == both_ways, bytes);
      else if (first_ || column == copies_both_ways)
        copies_at_once(windows ? window_ : 1, bytes);
    });
    return seconds / (windows ? window_ : column == copy ? 1 : 2);
  }

  /// The same of what the host does alone, of as many windows.
  double host_seconds(Column column, std::size_t bytes, int repeats) {
    irecv_ns_ = isend_ns_ = 0;
    static_cast<void>(seconds_of(repeats, [&] { messages_at_once(true, bytes); }));
    const auto taken = static_cast<double>(column == irecv_call ? irecv_ns_ : isend_ns_);
    return most_of_all(taken * 1e-9 / (window_ * repeats));
  }

  void ping_pong(bool hand, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    const auto send = [&] {
      if (hand) {
        check(cuMemcpyDtoHAsync(pinned_.data(), sends_.address(), bytes, device_.stream()), "cuMemcpyDtoHAsync");
        device_.wait();
      }
      const Calls& mpi = hand ? plain_ : bound_;
      mpi.send(hand ? pinned_.data() : sends_.pointer(), count, MPI_BYTE, peer_, 0, MPI_COMM_WORLD);
    };
    const auto receive = [&] {
      const Calls& mpi = hand ? plain_ : bound_;
      mpi.recv(hand ? pinned_.data() : receives_.pointer(), count, MPI_BYTE, peer_, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      if (!hand) return;
      check(cuMemcpyHtoDAsync(receives_.address(), pinned_.data(), bytes, device_.stream()), "cuMemcpyHtoDAsync");
      device_.wait();
    };
    if (first_) send();
    receive();
    if (!first_) send();
  }

  void copies_at_once(int copies, std::size_t bytes) {
    for (std::size_t at = 0; at < static_cast<std::size_t>(copies) * bytes; at += bytes)
      check(cuMemcpyAsync(other_->address() + at, sends_.address() + at, bytes, device_.stream()), "cuMemcpyAsync");
    device_.wait();
  }

  void messages_at_once(bool both, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    std::vector<MPI_Request> requests;
    requests.reserve(2 * static_cast<std::size_t>(window_));
    const auto begun = now_ns();
    for (int i = 0; i < window_; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      if (!first_ || both)
        bound_.irecv(static_cast<std::byte*>(receives_.pointer()) + at, count, MPI_BYTE, peer_, i, MPI_COMM_WORLD,
                     &requests.emplace_back());
    }
    const auto received = now_ns();
    irecv_ns_ += received - begun;
    for (int i = 0; i < window_; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      if (first_ || both)
        bound_.isend(static_cast<std::byte*>(sends_.pointer()) + at, count, MPI_BYTE, peer_, i, MPI_COMM_WORLD,
                     &requests.emplace_back());
    }
    isend_ns_ += now_ns() - received;
    bound_.waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    // The sender hears that all have arrived.
    char word = 0;
    if (first_) plain_.recv(&word, 1, MPI_BYTE, peer_, window_, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!first_) plain_.send(&word, 1, MPI_BYTE, peer_, window_, MPI_COMM_WORLD);
  }

  /// What each rank wrote stands on the other's GPU, which was cleared, behind each way of passing messages, before it is timed.
  void verify(std::size_t bytes) {
    const std::size_t all = bytes * static_cast<std::size_t>(window_);
    const auto words_of = [&](int rank) {
      std::vector<std::uint8_t> words(all);
      std::uint32_t state = 1U + static_cast<std::uint32_t>(bytes) + static_cast<std::uint32_t>(rank) * 77777U;
      for (auto& word : words) word = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24U);
      return words;
    };
    const auto mine = words_of(rank_);
    const auto theirs = words_of(peer_);
    check(cuMemcpyHtoD(sends_.address(), mine.data(), all), "cuMemcpyHtoD");
    std::vector<std::uint8_t> got(all);
    const auto demand_arrival = [&](std::string_view way, std::size_t arrives, auto&& pass) {
      check(cuMemsetD8(receives_.address(), 0, all), "cuMemsetD8");
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      pass();
      check(cuMemcpyDtoH(got.data(), receives_.address(), arrives), "cuMemcpyDtoH");
      const bool whole = std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(arrives), theirs.begin());
      demand_everywhere(whole, fmt::format("{}: {} bytes arrived wrong", way, bytes));
    };
    demand_arrival("both ways", all, [&] { messages_at_once(true, bytes); });
    demand_arrival("one way", first_ ? 0 : all, [&] { messages_at_once(false, bytes); });
    demand_arrival("one after the other", bytes, [&] { ping_pong(false, bytes); });
    if (as_.empty()) demand_arrival("by hand", bytes, [&] { ping_pong(true, bytes); });
    close_together(std::min(bytes, sizeof(std::uint64_t)), bytes);
  }

  // Messages of which each begins otherwise, in a row: short ones may come by a kernel that was there from the last one.
  void close_together(std::size_t begin, std::size_t bytes) {
    bool right = true;
    for (std::uint64_t i = 1; i <= 20; ++i) {
      check(cuMemcpyHtoD(sends_.address(), &i, begin), "cuMemcpyHtoD");
      ping_pong(false, bytes);
      std::uint64_t got = 0;
      check(cuMemcpyDtoH(&got, receives_.address(), begin), "cuMemcpyDtoH");
      right = right && got == i;
    }
    demand_everywhere(right, fmt::format("one after the other, in a row: {} bytes arrived wrong", bytes));
  }

  const int rank_, ranks_;
  const int peer_;    // ranks 2k and 2k + 1 are a pair
  const bool first_;  // of the pair
  const int runs_, window_;
  const std::string as_;
  const std::map<std::string, double> beside_;  // of a peer's run: seconds by column and bytes
  const bool shows_peer_;
  std::vector<Column> measured_;
  const int most_repeats_;
  const std::vector<long> sizes_;
  const Device device_;
  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  Csv csv_;
  const std::size_t most_;
  DeviceBuffer sends_, receives_;
  PinnedBuffer pinned_;
  std::optional<PeerBuffer> other_;
  decltype(now_ns()) irecv_ns_ = 0, isend_ns_ = 0;  // of windows' calls, while their column is measured
};

void run(int count, char** words) {
  const Options options(count, words,
                        {{"--csv", ""},
                         {"--window", "8"},
                         {"--gpus", "64"},
                         {"--as", ""},
                         {"--beside", ""},
                         {"--runs", "7"},
                         {"--repeats", "100"},
                         {"--sizes", "8,1024,4096,32768,262144,1048576,4194304,16777216,67108864,268435456"}});
  const World world = World::find();
  if (options.number("--window") < 1) throw std::runtime_error("--window: at least 1");
  if (world.ranks % 2 != 0) throw std::runtime_error("start an even number of ranks: two are a pair");
  if (!preloaded() && options.text("--as").empty())
    throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark(options, world).run();
}

}  // namespace

int main(int count, char** words) { return mpi_program("messages", count, words, run); }
