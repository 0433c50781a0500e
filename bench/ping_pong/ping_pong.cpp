// TYPES' ping-pongs (figures 9 to 15) between two ranks on one GPU or two: datatypes in GPU memory with Crosslane, beside contiguous
// bytes as many, beside the same by hand (the whole matrix to pinned memory, plain MPI with the datatype there, and back), and
// beside plain MPI on matrices in host memory; also while the ranks' own kernels keep a share of the GPU busy. All columns in one
// process and one run, in turns, and verified against plain MPI.
//   bench_ping_pong [--sizes N,...] [--cases C,V,...] [--gpus N] [--busy PERCENT,...] [--busy-sizes N,...] [--busy-cases V,...]
//                   [--runs N] [--milliseconds N] [--csv FILE]
#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"
#include "kernels/busy.h"
#include "ping_pong/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

enum Column : std::size_t { datatype, contiguous, by_hand, in_host_memory, columns };
constexpr std::array<std::string_view, columns> titles{"Crosslane", "Crosslane, contiguous", "by hand",
                                                       "host memory, plain MPI"};

/// A rank's memory for one case, on the GPU and beside it.
struct Memory {
  explicit Memory(std::size_t bytes)
      : sends(bytes), receives(bytes), pinned_sends(bytes), pinned_receives(bytes), host(bytes), got(bytes) {}
  DeviceBuffer sends, receives;
  PinnedBuffer pinned_sends, pinned_receives;
  std::vector<std::uint8_t> host, got;
};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : rank_(world.rank),
        runs_(static_cast<int>(options.number("--runs"))),
        budget_(static_cast<double>(options.number("--milliseconds")) / 1e3),
        device_(world.local, static_cast<int>(options.number("--gpus"))),
        csv_(
            rank_ == 0 ? options.text("--csv") : "",
            {"ping_pong", fmt::format("{} x {}", device_.count(), device_.name())},
            {"case", "n", "bytes", "gpus", "turns", "busy", "copy_blocks", "piece_bytes", "column", "run", "seconds"}) {
    copy_blocks_ = setting("CROSSLANE_COPY_BLOCKS");
    piece_bytes_ = setting("CROSSLANE_PIECE_BYTES");
    gpus_ = std::min(device_.count(), 2);
    if (rank_ == 0)
      fmt::print(stdout, "ping_pong: {}, {} of {}{}, {}, copy blocks {}, pieces {}; us a message, medians of {} runs\n",
                 processor(), gpus_, device_.name(), turns() ? ", without MPS" : "", mpi_version(), copy_blocks_,
                 piece_bytes_, runs_);
  }

  void table(const std::vector<std::string>& cases, const std::vector<long>& sizes, long busy) {
    if (rank_ == 0)
      fmt::print(stdout, "{:>10} {:>6} {:>10} {:>5} {:>12} {:>12} {:>6} {:>12} {:>7} {:>12} {:>7} {:>8}\n", "case", "n",
                 "bytes", "busy", "Crosslane", "contiguous", "ratio", "by hand", "ratio", "host memory", "ratio",
                 "GB/s");
    // On a GPU that both ranks use, one of them keeps it busy.
    const Busy kernels(device_, rank_ == 0 || gpus_ == 2 ? static_cast<int>(busy) : 0);
    for (const auto& name : cases)
      for (const long n : sizes) measure(name, n, busy);
  }

 private:
  static std::string setting(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "default" : text;
  }

  // Rank 0's GPU is rank 1's, too, and their kernels take turns on it.
  [[nodiscard]] bool turns() const { return gpus_ == 1 && device_.takes_turns(); }

  void measure(const std::string& name, long n, long busy) {
    const Case one = make_case(name, n, rank_);
    Memory memory(std::max(one.mine.room(), one.bytes));
    fill(one, memory);
    for (std::size_t column = 0; column < columns; ++column) verify(one, memory, static_cast<Column>(column));
    std::array<int, columns> repeats{1, 1, 1, 1};
    std::array<bool, columns> warm{};
    const auto once = [&](std::size_t column) {
      const auto ping = [&] { ping_pong(one, memory, static_cast<Column>(column)); };
      if (!warm[column]) {
        warm[column] = true;
        repeats[column] = repeats_for(seconds_of(1, ping), budget_, 200);
      }
      return seconds_of(repeats[column], ping) / 2;
    };
    const auto row = [&](std::size_t column, int run, double seconds) {
      csv_.row({name, std::to_string(n), std::to_string(one.bytes), std::to_string(gpus_), turns() ? "yes" : "no",
                std::to_string(busy), copy_blocks_, piece_bytes_, std::string(titles[column]), std::to_string(run),
                fmt::format("{:.9f}", seconds)});
    };
    const auto seconds = in_turns(columns, runs_, once, row);
    for (std::size_t column = 0; column < columns; ++column) verify(one, memory, static_cast<Column>(column));
    print(one, busy, seconds);
  }

  void print(const Case& one, long busy, const std::vector<std::vector<double>>& seconds) const {
    if (rank_ != 0) return;
    const double mine = median(seconds[datatype]);
    fmt::print(stdout, "{:>10} {:6} {:10} {:4}% {:12.1f}", one.name, one.n, one.bytes, busy, mine * 1e6);
    for (std::size_t column = contiguous; column < seconds.size(); ++column) {
      const double other = median(seconds[column]);
      fmt::print(stdout, " {:12.1f} {:{}.2f}", other * 1e6, other / mine, column == contiguous ? 6 : 7);
    }
    fmt::print(stdout, " {:8.1f}\n", static_cast<double>(one.bytes) / mine / 1e9);
    std::fflush(stdout);
  }

  /// A message and its answer. Every message starts in `sends` and ends in `receives`.
  void ping_pong(const Case& one, Memory& memory, Column column) const {
    if (rank_ == 0) send(one, memory, column);
    receive(one, memory, column);
    if (rank_ == 1) send(one, memory, column);
  }

  void send(const Case& one, Memory& memory, Column column) const {
    const auto type = one.mine.get();
    if (column == datatype) bound_.send(memory.sends.pointer(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD);
    if (column == contiguous)
      bound_.send(memory.sends.pointer(), doubles(one), MPI_DOUBLE, 1 - rank_, 0, MPI_COMM_WORLD);
    if (column == by_hand) {
      check(cuMemcpyDtoHAsync(memory.pinned_sends.data(), memory.sends.address(), one.mine.room(), device_.stream()),
            "cuMemcpyDtoHAsync");
      device_.wait();
      plain_.send(memory.pinned_sends.data(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD);
    }
    if (column == in_host_memory) plain_.send(memory.host.data(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD);
  }

  void receive(const Case& one, Memory& memory, Column column) const {
    const auto type = one.mine.get();
    MPI_Status* const ignore = MPI_STATUS_IGNORE;
    if (column == datatype) bound_.recv(memory.receives.pointer(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD, ignore);
    if (column == contiguous)
      bound_.recv(memory.receives.pointer(), doubles(one), MPI_DOUBLE, 1 - rank_, 0, MPI_COMM_WORLD, ignore);
    if (column == by_hand) {
      plain_.recv(memory.pinned_receives.data(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD, ignore);
      check(cuMemcpyHtoDAsync(memory.receives.address(), memory.pinned_receives.data(), one.mine.room(),
                              device_.stream()),
            "cuMemcpyHtoDAsync");
      device_.wait();
    }
    if (column == in_host_memory) plain_.recv(memory.got.data(), 1, type, 1 - rank_, 0, MPI_COMM_WORLD, ignore);
  }

  static int doubles(const Case& one) { return static_cast<int>(one.bytes / sizeof(double)); }

  /// Each rank sends other bytes, at each place others.
  void fill(const Case& one, Memory& memory) const {
    auto state = static_cast<std::uint32_t>(one.bytes) * 2U + static_cast<std::uint32_t>(rank_);
    for (auto& byte : memory.host) byte = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24U);
    check(cuMemcpyHtoD(memory.sends.address(), memory.host.data(), memory.host.size()), "cuMemcpyHtoD");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  /// A ping-pong gives both ranks the bytes that plain MPI gives on host memory, and leaves gaps as they were.
  void verify(const Case& one, Memory& memory, Column column) {
    constexpr std::uint8_t gap = 0xa5;
    const std::size_t bytes = memory.host.size();
    std::vector<std::uint8_t> expected(bytes, gap), found(bytes);
    const MPI_Datatype type = column == contiguous ? MPI_DOUBLE : one.mine.get();
    const int count = column == contiguous ? doubles(one) : 1;
    plain_.sendrecv(memory.host.data(), count, type, 1 - rank_, 1, expected.data(), count, type, 1 - rank_, 1,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::fill_n(memory.pinned_receives.data(), bytes, std::byte{gap});
    std::fill(memory.got.begin(), memory.got.end(), gap);
    check(cuMemsetD8(memory.receives.address(), gap, bytes), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    ping_pong(one, memory, column);
    if (column == in_host_memory)
      found = memory.got;
    else
      check(cuMemcpyDtoH(found.data(), memory.receives.address(), bytes), "cuMemcpyDtoH");
    demand_everywhere(found == expected,
                      fmt::format("{} of {}: what arrived is wrong ({})", one.name, one.n, titles[column]));
  }

  const int rank_, runs_;
  const double budget_;
  const Device device_;
  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  Csv csv_;
  std::string copy_blocks_, piece_bytes_;
  int gpus_ = 1;
};

void run(int count, char** words) {
  const Options options(count, words,
                        {{"--csv", ""},
                         {"--runs", "5"},
                         {"--milliseconds", "50"},
                         {"--gpus", "2"},
                         {"--cases", case_names},
                         {"--sizes", "512,1024,2048,4096"},
                         {"--busy", "25,50,100"},
                         {"--busy-cases", "C,V,T"},
                         {"--busy-sizes", "1000,2000"}});
  const World world = World::find();
  if (world.ranks != 2) throw std::runtime_error("start two ranks");
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark benchmark(options, world);
  if (options.text("--sizes") != "none") benchmark.table(options.words("--cases"), options.numbers("--sizes"), 0);
  if (options.text("--busy") == "none") return;
  if (const auto reason = no_kernels(); !reason.empty()) {
    if (world.rank == 0) fmt::print(stdout, "ping_pong: beside a busy GPU: left out, {}\n", reason);
    return;
  }
  benchmark.table(options.words("--busy-cases"), options.numbers("--busy-sizes"), 0);
  for (const long percent : options.numbers("--busy"))
    benchmark.table(options.words("--busy-cases"), options.numbers("--busy-sizes"), percent);
}

}  // namespace

int main(int count, char** words) { return mpi_program("ping_pong", count, words, run); }
