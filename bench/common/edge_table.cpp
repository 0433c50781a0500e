// See edge_table.h.
#include "common/edge_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace crosslane::bench {

EdgeTable::EdgeTable(const Options& options, const World& world, Words words)
    : world_(world),
      words_(std::move(words)),
      runs_(static_cast<int>(options.number("--runs"))),
      budget_(static_cast<double>(options.number("--milliseconds")) / 1e3),
      device_(world.local, static_cast<int>(options.number("--gpus"))),
      gpus_(std::min(device_.count(), world.ranks)),
      turns_(gpus_ < world.ranks && device_.takes_turns() ? "yes" : "no"),
      csv_(world.rank == 0 ? options.text("--csv") : "",
           {words_.benchmark, fmt::format("{} x {}", device_.count(), device_.name())},
           {"edge", "bytes", "ranks", "gpus", "turns", "column", "run", "seconds"}) {
  if (world.rank != 0) return;
  fmt::print(stdout, "{}: {}, {} ranks on {} x {}{}, {}; us {}, medians of {} runs\n", words_.benchmark, processor(),
             world.ranks, gpus_, device_.name(), turns_ == "yes" ? ", without MPS" : "", mpi_version(),
             words_.operation, runs_);
  if (!words_.remark.empty()) fmt::print(stdout, "{}: {}\n", words_.benchmark, words_.remark);
  fmt::print(stdout, "{:>6} {:>10} {:>8}", "edge", "bytes", words_.shape);
  for (std::size_t column = 0; column < words_.columns.size(); ++column)
    fmt::print(stdout, " {:>24} {:>6}", words_.columns[column], column == 0 ? "GB/s" : "ratio");
  fmt::print(stdout, "\n");
}

void EdgeTable::measure(int edge, std::size_t bytes, const std::string& shape,
                        const std::function<void(std::size_t column)>& once,
                        const std::function<void(std::size_t column)>& verify) {
  const std::size_t columns = words_.columns.size();
  for (std::size_t column = 0; column < columns; ++column) verify(column);
  std::vector<int> repeats(columns);
  const auto timed = [&](std::size_t column) {
    const auto one = [&] { once(column); };
    if (repeats[column] == 0) repeats[column] = repeats_for(seconds_of(1, one), budget_, 200);
    return seconds_of(repeats[column], one);
  };
  const auto row = [&](std::size_t column, int run, double seconds) {
    csv_.row({std::to_string(edge), std::to_string(bytes), std::to_string(world_.ranks), std::to_string(gpus_), turns_,
              std::string(words_.columns[column]), std::to_string(run), fmt::format("{:.9f}", seconds)});
  };
  const auto seconds = in_turns(columns, runs_, timed, row);
  for (std::size_t column = 0; column < columns; ++column) verify(column);
  if (world_.rank != 0) return;
  fmt::print(stdout, "{:6} {:10} {:>8}", edge, bytes, shape);
  const double first = median(seconds.front());
  for (std::size_t column = 0; column < columns; ++column) {
    const double time = median(seconds[column]);
    fmt::print(stdout, " {:24.1f} {:6.2f}", time * 1e6,
               column == 0 ? static_cast<double>(bytes) / time / 1e9 : time / first);
  }
  fmt::print(stdout, "\n");
  std::fflush(stdout);
}

}  // namespace crosslane::bench
