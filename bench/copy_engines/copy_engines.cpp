// What copy engines reach between GPUs in several processes, for each of several streams: the driver deals them to engines, which
// need not be alike. Each rank copies to the next one; to all others in turn; and to all, waiting for each other after each copy. The driver alone,
// without Crosslane; all columns in turns, and verified. Start a rank a GPU.
//   bench_copy_engines [--sizes MIB,...] [--streams N] [--runs N] [--csv FILE]       sizes are of one copy
#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/record.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

enum Pattern : std::size_t { to_next, to_all, in_step };
constexpr std::array<std::string_view, 3> names{"to the next", "to all", "to all, in step"};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : world_(world),
        runs_(static_cast<int>(options.number("--runs"))),
        sizes_(options.numbers("--sizes")),
        device_(world.local),
        most_(static_cast<std::size_t>(*std::max_element(sizes_.begin(), sizes_.end())) * mebibyte),
        from_(most_),
        to_(most_ * static_cast<std::size_t>(world.ranks)),
        csv_(world.rank == 0 ? options.text("--csv") : "",
             {"copy_engines", fmt::format("{} x {}", device_.count(), device_.name())},
             {"pattern", "stream", "bytes", "ranks", "run", "seconds"}) {
    if (world.ranks < 2) throw std::runtime_error("start at least two ranks");
    streams_.resize(static_cast<std::size_t>(options.number("--streams")));
    for (auto& stream : streams_) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    open_peers();
    const auto words = pattern(world.rank);
    check(cuMemcpyHtoD(from_.address(), words.data(), most_), "cuMemcpyHtoD");
  }
  ~Benchmark() {
    for (CUstream stream : streams_) cuStreamDestroy(stream);
  }
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;

  void run() {
    say(fmt::format("copy_engines: {}, {} ranks on {} x {}, {}; GB/s out of each GPU, medians of {} runs", processor(),
                    world_.ranks, std::min(device_.count(), world_.ranks), device_.name(), mpi_version(), runs_));
    for (const long size : sizes_) one_size(static_cast<std::size_t>(size) * mebibyte);
    MPI_Barrier(MPI_COMM_WORLD);  // nobody frees what others have mapped
    peers_.clear();
    MPI_Barrier(MPI_COMM_WORLD);
  }

 private:
  void say(const std::string& line) const {
    if (world_.rank != 0) return;
    fmt::print(stdout, "{}\n", line);
    std::fflush(stdout);
  }

  void open_peers() {
    CUipcMemHandle mine;
    check(cuIpcGetMemHandle(&mine, to_.address()), "cuIpcGetMemHandle");
    std::vector<CUipcMemHandle> all(static_cast<std::size_t>(world_.ranks));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    for (int rank = 0; rank < world_.ranks; ++rank)
      peers_.push_back(rank == world_.rank ? nullptr
                                           : std::make_unique<PeerBuffer>(all[static_cast<std::size_t>(rank)]));
  }

  [[nodiscard]] std::vector<std::uint32_t> pattern(int rank) const {
    std::vector<std::uint32_t> words(most_ / sizeof(std::uint32_t));
    auto state = 77U + static_cast<std::uint32_t>(rank);
    for (auto& word : words) word = state = state * 1664525U + 1013904223U;
    return words;
  }

  void copy(int distance, std::size_t bytes, CUstream stream) const {
    const auto me = static_cast<std::size_t>(world_.rank);
    const auto peer = static_cast<std::size_t>((world_.rank + distance) % world_.ranks);
    check(cuMemcpyAsync(peers_[peer]->address() + me * bytes, from_.address(), bytes, stream), "cuMemcpyAsync");
  }

  void operate(Pattern how, std::size_t bytes, CUstream stream) const {
    const int last = how == to_next ? 1 : world_.ranks - 1;
    for (int distance = 1; distance <= last; ++distance) {
      copy(distance, bytes, stream);
      if (how != in_step) continue;
      check(cuStreamSynchronize(stream), "cuStreamSynchronize");
      MPI_Barrier(MPI_COMM_WORLD);
    }
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  void verify(std::size_t bytes) const {
    check(cuMemsetD8(to_.address(), 0, to_.size()), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    MPI_Barrier(MPI_COMM_WORLD);
    operate(to_all, bytes, streams_.front());
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<std::byte> got(bytes);
    bool right = true;
    for (int rank = 0; rank < world_.ranks; ++rank) {
      if (rank == world_.rank) continue;
      check(cuMemcpyDtoH(got.data(), to_.address() + static_cast<std::size_t>(rank) * bytes, bytes), "cuMemcpyDtoH");
      right = right && std::memcmp(got.data(), pattern(rank).data(), bytes) == 0;
    }
    demand_everywhere(right, fmt::format("copies of {} bytes brought something else", bytes));
  }

  void one_size(std::size_t bytes) {
    verify(bytes);
    const std::size_t columns = names.size() * streams_.size();
    const auto how = [](std::size_t column) { return static_cast<Pattern>(column % names.size()); };
    const auto times = in_turns(
        columns, runs_,
        [&](std::size_t column) {
          return seconds_of(1, [&] { operate(how(column), bytes, streams_[column / names.size()]); });
        },
        [&](std::size_t column, int run, double seconds) {
          csv_.row({std::string(names[how(column)]), std::to_string(column / names.size()), std::to_string(bytes),
                    std::to_string(world_.ranks), std::to_string(run), fmt::format("{:.9f}", seconds)});
        });
    std::string line = fmt::format("{:>6} MiB", bytes / mebibyte);
    for (const auto name : names) line += fmt::format(" {:>16}", name);
    say(line);
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      line = fmt::format("stream {:3}", stream);
      for (std::size_t i = 0; i < names.size(); ++i) {
        const double moved = static_cast<double>(bytes) * (i == to_next ? 1 : world_.ranks - 1);
        line += fmt::format(" {:16.1f}", moved / median(times[stream * names.size() + i]) / 1e9);
      }
      say(line);
    }
  }

  const World world_;
  const int runs_;
  const std::vector<long> sizes_;
  const Device device_;
  const std::size_t most_;
  const DeviceBuffer from_, to_;
  Csv csv_;
  std::vector<CUstream> streams_;
  std::vector<std::unique_ptr<PeerBuffer>> peers_;
};

void run(int count, char** words) {
  const Options options(count, words, {{"--sizes", "32,256"}, {"--streams", "12"}, {"--runs", "5"}, {"--csv", ""}});
  Benchmark(options, World::find()).run();
}

}  // namespace

int main(int count, char** words) { return mpi_program("copy_engines", count, words, run); }
