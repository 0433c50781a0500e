// Times one operation at one size: the columns in turns, within one run of the program, every turn's result verified.
// It must not know what an operation does, nor how results are printed.
#pragma once

#include "operations.h"

#include <functional>
#include <string>
#include <vector>

namespace crosslane::bench {

/// A way to do the operation.
struct Column {
  std::string name;
  std::function<void(const Operation&, const Buffers&)> run;
};

/// What one column took at one size; the same on every rank. Times are microseconds an operation: in each run the
/// slowest rank's.
struct Result {
  std::string column;
  int iterations = 0;
  double median_us = 0;
  double min_us = 0;
  double p99_us = 0;
  double gb_per_s = 0;  // of the median
  bool verified = false;
};

/// Collective over MPI_COMM_WORLD. `iterations` 0 takes as many as fit into about half a second a column, 5 to 200.
/// A column whose result is wrong on any rank is reported with verified = false, and still timed.
std::vector<Result> measure(const Operation& operation, const std::vector<Column>& columns, int iterations);

}  // namespace crosslane::bench
