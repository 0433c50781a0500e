// See measure.h. The receive buffer is poisoned before each turn, so that a turn which moves nothing cannot pass.
#include "measure.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace crosslane::bench {
namespace {

constexpr int turns = 5;
constexpr double budget_us = 500'000;

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Turn {
 public:
  Turn(const Operation& operation, const Buffers& buffers)
      : operation_(operation),
        buffers_(buffers),
        expected_(operation.receive_count()),
        got_(operation.receive_count()) {
    operation.expect(expected_);
  }

  /// Runs a column `iterations` times and returns each run's time, the slowest rank's; clears `verified` where the
  /// result is wrong on any rank.
  std::vector<double> run(const Column& column, int iterations, bool& verified) {
    poison();
    std::vector<double> times;
    times.reserve(static_cast<std::size_t>(iterations));
    for (int i = 0; i < iterations; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = microseconds();
      column.run(operation_, buffers_);
      times.push_back(microseconds() - start);
    }
    int right = correct() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (right == 0) verified = false;
    MPI_Allreduce(MPI_IN_PLACE, times.data(), iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return times;
  }

 private:
  void poison() const {
    if (expected_.empty()) return;
    const std::size_t bytes = expected_.size() * sizeof(float);
    std::memset(buffers_.host_receive.data(), 0xff, bytes);
    check(cuMemsetD8(buffers_.receive.address(), 0xff, bytes), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");  // a memset returns before it is done
  }

  bool correct() {
    if (expected_.empty()) return true;
    check(cuMemcpyDtoH(got_.data(), buffers_.receive.address(), got_.size() * sizeof(float)), "cuMemcpyDtoH");
    return got_ == expected_;
  }

  const Operation& operation_;
  const Buffers& buffers_;
  std::vector<float> expected_;
  std::vector<float> got_;
};

Result summarise(std::vector<double> times, const Column& column, const Operation& operation, bool verified) {
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double share) {
    // Nearest rank: a time that was measured.
    const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(times.size())));
    return times[std::clamp<std::size_t>(at, 1, times.size()) - 1];
  };
  Result result;
  result.column = column.name;
  result.iterations = static_cast<int>(times.size());
  result.median_us = quantile(0.5) / operation.operations();
  result.min_us = times.front() / operation.operations();
  result.p99_us = quantile(0.99) / operation.operations();
  result.gb_per_s = operation.moved() / (quantile(0.5) * 1e3);
  result.verified = verified;
  return result;
}

}  // namespace

std::vector<Result> measure(const Operation& operation, const std::vector<Column>& columns, int iterations) {
  const Buffers buffers(operation.send_count() * sizeof(float), operation.receive_count() * sizeof(float));
  std::vector<float> input(operation.send_count());
  operation.fill(input);
  if (!input.empty())
    check(cuMemcpyHtoD(buffers.send.address(), input.data(), input.size() * sizeof(float)), "cuMemcpyHtoD");

  Turn turn(operation, buffers);
  std::vector<std::vector<double>> times(columns.size());
  std::vector<char> verified(columns.size(), 1);
  const auto take_turn = [&](std::size_t which, int count) {
    bool right = true;
    auto measured = turn.run(columns[which], count, right);
    if (!right) verified[which] = 0;
    return measured;
  };

  // Warm-up: first use maps, allocates and learns. Its last run tells how many fit into the budget.
  double slowest = 0;
  for (std::size_t which = 0; which < columns.size(); ++which) {
    take_turn(which, 3);
    const double before = microseconds();
    take_turn(which, 2);
    slowest = std::max(slowest, (microseconds() - before) / 2);
  }
  MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (iterations == 0) iterations = static_cast<int>(std::clamp(budget_us / slowest, 5.0, 200.0));
  const int most_turns = std::min(turns, iterations);

  for (int round = 0; round < most_turns; ++round) {
    const int count = iterations / most_turns + (round < iterations % most_turns ? 1 : 0);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(round)) % columns.size();  // no column is always first
      const auto measured = take_turn(which, count);
      times[which].insert(times[which].end(), measured.begin(), measured.end());
    }
  }

  std::vector<Result> results;
  for (std::size_t which = 0; which < columns.size(); ++which)
    results.push_back(summarise(times[which], columns[which], operation, verified[which] != 0));
  return results;
}

}  // namespace crosslane::bench
