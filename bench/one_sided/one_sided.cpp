// One-sided accesses to windows in GPU memory, as benchmarks of MPIs measure them: within one MPI_Win_lock_all the first of two ranks puts to, gets from
// or accumulates in the other's memory, from its own GPU's, and flushes behind each ("put", "get", "sum" of doubles, "fetch" of one by MPI_Fetch_and_op, "swap" of one by
// MPI_Compare_and_swap) or behind a window of them ("puts", "gets"; a time is one's share). The other one waits in MPI_Barrier. Beside what the hardware does: one copy by the copy
// engine to memory opened over CUDA IPC, and a window of them. All columns in one process and one run, in turns, and verified.
//   bench_one_sided [--columns NAME,...] [--sizes N,...] [--window N] [--gpus N] [--runs N] [--repeats N] [--csv FILE] [--as NAME] [--beside FILE]
// --as NAME: without Crosslane, over an MPI that takes GPU memory itself, or with it, otherwise set: a name for what is printed. --beside FILE shows the
// medians of such a run of a moment ago, and the ratio to them.
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

enum Column : std::size_t { put, get, sum, fetch, swap, puts, gets, copy, copies, columns };
constexpr std::array<std::string_view, columns> names{"put",  "get",  "sum",  "fetch", "swap",
                                                      "puts", "gets", "copy", "copies"};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : rank_(world.rank),
        runs_(static_cast<int>(options.number("--runs"))),
        most_repeats_(static_cast<int>(options.number("--repeats"))),
        window_size_(static_cast<int>(options.number("--window"))),
        sizes_(options.numbers("--sizes")),
        columns_(chosen(options.words("--columns"))),
        as_(options.text("--as")),
        beside_(medians(options.text("--beside"), {"column", "bytes"}, "seconds")),
        device_(world.local, static_cast<int>(options.number("--gpus"))),
        csv_(world.rank == 0 ? options.text("--csv") : "",
             {"one_sided", fmt::format("{} x {}", device_.count(), device_.name())},
             {"column", "window", "bytes", "run", "seconds"}),
        most_(std::max(least, static_cast<std::size_t>(*std::max_element(sizes_.begin(), sizes_.end())) *
                                  static_cast<std::size_t>(window_size_))),
        own_(most_),
        exposed_(most_) {
    MPI_Win_create(exposed_.pointer(), static_cast<MPI_Aint>(most_), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
    CUipcMemHandle mine{}, theirs{};
    check(cuIpcGetMemHandle(&mine, exposed_.address()), "cuIpcGetMemHandle");
    const Calls plain = Calls::plain();
    plain.sendrecv(&mine, sizeof mine, MPI_BYTE, 1 - rank_, 0, &theirs, sizeof theirs, MPI_BYTE, 1 - rank_, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    other_.emplace(theirs);
    MPI_Win_lock_all(0, window_);
  }
  ~Benchmark() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  void run() {
    if (rank_ == 0) {
      fmt::print(stdout, "one_sided: {}, {} x {}, {}{}; medians of {} runs in us; windows of {}, one's share{}\n",
                 processor(), device_.count(), device_.name(), mpi_version(), as_.empty() ? "" : ", " + as_, runs_,
                 window_size_, beside_.empty() ? "" : "; in brackets the ratio to the other run");
      fmt::print(stdout, "{:>10}", "bytes");
      for (const Column column : columns_) fmt::print(stdout, " {:>17}", names[column]);
      fmt::print(stdout, "\n");
    }
    for (const long size : sizes_) one_size(static_cast<std::size_t>(size));
  }

 private:
  static std::vector<Column> chosen(const std::vector<std::string>& words) {
    std::vector<Column> found;
    for (std::size_t column = 0; column < columns; ++column)
      if (words.empty() || std::ranges::find(words, names[column]) != words.end())
        found.push_back(static_cast<Column>(column));
    if (found.size() != (words.empty() ? columns : words.size()))
      throw std::runtime_error(fmt::format("--columns: some of {}", fmt::join(names, ",")));
    return found;
  }

  void one_size(std::size_t bytes) {
    verify(bytes);
    const int repeats = std::clamp(static_cast<int>((std::size_t{64} << 20) / bytes), 2, most_repeats_);
    const auto seconds = in_turns(
        columns_.size(), runs_, [&](std::size_t which) { return once(columns_[which], bytes, repeats); },
        [&](std::size_t which, int run, double time) {
          csv_.row({std::string(names[columns_[which]]), std::to_string(window_size_), std::to_string(bytes),
                    std::to_string(run), fmt::format("{:.9f}", time)});
        });
    if (rank_ != 0) return;
    fmt::print(stdout, "{:10}", bytes);
    for (std::size_t which = 0; which < columns_.size(); ++which) {
      const double time = median(seconds[which]);
      const auto found = beside_.find(fmt::format("{}/{}", names[columns_[which]], bytes));
      fmt::print(stdout, " {:>17}",
                 found == beside_.end() ? fmt::format("{:.2f}", time * 1e6)
                                        : fmt::format("{:.2f} ({:.3f})", time * 1e6, time / found->second));
    }
    fmt::print(stdout, "\n");
    std::fflush(stdout);
  }

  double once(Column column, std::size_t bytes, int repeats) {
    const double seconds = seconds_of(repeats, [&] {
      if (rank_ == 0) access(column, bytes);
    });
    return seconds / (column == puts || column == gets || column == copies ? window_size_ : 1);
  }

  // Of the first rank.
  void access(Column column, std::size_t bytes) {
    const int count = static_cast<int>(bytes),
              many = column == puts || column == gets || column == copies ? window_size_ : 1;
    auto* const own = static_cast<std::byte*>(own_.pointer());
    for (int i = 0; i < many; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      const auto there = static_cast<MPI_Aint>(at);
      switch (column) {
        case put:
        case puts:
          MPI_Put(own + at, count, MPI_BYTE, 1, there, count, MPI_BYTE, window_);
          break;
        case get:
        case gets:
          MPI_Get(own + at, count, MPI_BYTE, 1, there, count, MPI_BYTE, window_);
          break;
        case sum:
          MPI_Accumulate(own, count / 8, MPI_DOUBLE, 1, 0, count / 8, MPI_DOUBLE, MPI_SUM, window_);
          break;
        case fetch:
          MPI_Fetch_and_op(own, own + 8, MPI_LONG, 1, 0, MPI_SUM, window_);
          break;
        case swap:
          MPI_Compare_and_swap(own, own + 16, own + 8, MPI_LONG, 1, 0, window_);
          break;
        default:
          check(cuMemcpyAsync(other_->address() + at, own_.address() + at, bytes, device_.stream()), "cuMemcpyAsync");
      }
    }
    if (column >= copy)
      device_.wait();
    else
      MPI_Win_flush(1, window_);
  }

  // The columns before they are timed: what the first rank put is what it then gets, elsewhere, and what the other one finds once its memory is its own
  // again; sums and swaps by their numbers.
  void verify(std::size_t bytes) {
    const std::size_t all = bytes * static_cast<std::size_t>(window_size_);
    std::vector<std::uint8_t> words(all);
    std::uint32_t state = 1U + static_cast<std::uint32_t>(bytes);
    for (auto& word : words) word = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24U);
    const std::vector<std::uint8_t> nothing(all);
    for (const Column column : {puts, gets, copies, put, get, copy}) {
      if (!measures(column)) continue;
      const bool gets_them = column == get || column == gets;
      const std::size_t moved = column == put || column == get || column == copy ? bytes : all;
      write(own_, gets_them ? nothing : words);
      write(exposed_, gets_them ? words : nothing);
      accessed(column, bytes, 1);
      const auto found = read<std::uint8_t>(gets_them ? own_ : exposed_, all);
      const bool whole = std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(moved), words.begin());
      demand_everywhere(rank_ == (gets_them ? 1 : 0) || whole,
                        fmt::format("{} of {} bytes came wrong", names[column], bytes));
    }
    if (measures(sum)) verify_sum(bytes);
    if (measures(fetch)) one_number(fetch, {5, 0, 0}, 10, 5);  // twice 5 on 0: at last 5 was found
    if (measures(swap)) one_number(swap, {7, 0, 0}, 7, 7);     // 7 for 0, and then not for 7
    write(own_, nothing);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  [[nodiscard]] bool measures(Column column) const { return std::ranges::find(columns_, column) != columns_.end(); }

  // Of numbers that are exact in any order.
  void verify_sum(std::size_t bytes) {
    std::vector<double> numbers(bytes / sizeof(double));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1.0 + static_cast<double>(i % 1000);
    write(own_, numbers);
    write(exposed_, std::vector<double>(numbers.size()));
    accessed(sum, bytes, 3);
    const auto sums = read<double>(exposed_, numbers.size());
    bool right = true;
    for (std::size_t i = 0; i < sums.size(); ++i) right = right && sums[i] == 3 * numbers[i];
    demand_everywhere(rank_ == 0 || right, fmt::format("the sum of {} bytes is wrong", bytes));
  }

  // By the first rank, between two epochs of its and the other's own accesses.
  void accessed(Column column, std::size_t bytes, int times) {
    const auto synchronise = [&] {
      MPI_Win_sync(window_);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_sync(window_);
    };
    synchronise();
    for (int i = 0; rank_ == 0 && i < times; ++i) access(column, bytes);
    synchronise();
  }

  void one_number(Column column, const std::vector<long>& own, long exposed, long found) {
    write(own_, own);
    write(exposed_, std::vector<long>(1));
    accessed(column, 8, 2);
    const bool right = rank_ == 0 ? read<long>(own_, 2)[1] == found : read<long>(exposed_, 1)[0] == exposed;
    demand_everywhere(right, fmt::format("{} is wrong", names[column]));
  }

  template <class Value>
  static void write(const DeviceBuffer& buffer, const std::vector<Value>& content) {
    check(cuMemcpyHtoD(buffer.address(), content.data(), content.size() * sizeof(Value)), "cuMemcpyHtoD");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  template <class Value>
  static std::vector<Value> read(const DeviceBuffer& buffer, std::size_t count) {
    std::vector<Value> content(count);
    check(cuMemcpyDtoH(content.data(), buffer.address(), count * sizeof(Value)), "cuMemcpyDtoH");
    return content;
  }

  const int rank_, runs_, most_repeats_, window_size_;
  const std::vector<long> sizes_;
  const std::vector<Column> columns_;
  const std::string as_;
  const std::map<std::string, double> beside_;
  const Device device_;
  Csv csv_;
  static constexpr std::size_t least = 64;  // what one number takes, with what it is compared and fetched to
  const std::size_t most_;
  const DeviceBuffer own_, exposed_;
  std::optional<PeerBuffer> other_;
  MPI_Win window_ = MPI_WIN_NULL;
};

void run(int count, char** words) {
  const Options options(count, words,
                        {{"--csv", ""},
                         {"--columns", ""},
                         {"--window", "8"},
                         {"--gpus", "64"},
                         {"--as", ""},
                         {"--beside", ""},
                         {"--runs", "5"},
                         {"--repeats", "100"},
                         {"--sizes", "16,1024,32768,262144,1048576,16777216"}});
  const World world = World::find();
  if (world.ranks != 2) throw std::runtime_error("start two ranks: one accesses the other's memory");
  if (!preloaded() && options.text("--as").empty())
    throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark(options, world).run();
}

}  // namespace

int main(int count, char** words) { return mpi_program("one_sided", count, words, run); }
