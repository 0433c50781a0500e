// What the benchmark programs share: the clock, the median, a machine's description, and raw measurements as CSV rows.
// It must not know what is measured, nor anything of Crosslane.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace crosslane::bench {

/// Nanoseconds of the steady clock; the same clock in all processes of a node.
[[nodiscard]] std::int64_t now_ns() noexcept;

/// The middle value; of an even number the upper of the two in the middle. 0 for none.
[[nodiscard]] double median(std::vector<double> values);

/// The processor and how many of its cores this process may use, e.g. "AMD EPYC 7B13, 16 cores".
[[nodiscard]] std::string processor();

/// The MPI's own words up to the first comma or line's end, e.g. "Open MPI v4.1.4". Needs no MPI_Init.
[[nodiscard]] std::string mpi_version();

/// Raw measurements, a row each, behind a header row: benchmark, processor, gpu, mpi, crosslane, then the caller's
/// columns. Rows are appended: a file may gather the runs of several processes, one after another.
class Csv {
 public:
  /// What every row of this process says. `gpu`: the GPU and its driver, or "none".
  struct Machine {
    std::string benchmark, gpu;
  };
  /// `file`: the path; empty writes nothing. Throws std::runtime_error where it cannot be written.
  Csv(const std::string& file, Machine machine, const std::vector<std::string>& columns);
  ~Csv();
  Csv(const Csv&) = delete;
  Csv& operator=(const Csv&) = delete;

  /// One row; as many values as there are columns.
  void row(const std::vector<std::string>& values);
  /// The GPU of the rows from now on: a driver may be loaded midway.
  void set_gpu(std::string gpu) { machine_.gpu = std::move(gpu); }

 private:
  Machine machine_;
  std::string processor_, mpi_;
  std::size_t columns_;
  std::FILE* file_ = nullptr;
};

/// What another process has written: the medians of the column `value`, by the values of `keys` with '/' between them. Nothing
/// where there is no such file.
[[nodiscard]] std::map<std::string, double> medians(const std::string& file, const std::vector<std::string>& keys,
                                                    const std::string& value);

}  // namespace crosslane::bench
