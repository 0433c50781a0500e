// A table with a line for each edge of an array and a column for each way to move its parts, all columns in one process and one run, in
// turns, and verified. It must not know what is moved.
#pragma once

#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/record.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::bench {

class EdgeTable {
 public:
  struct Words {
    std::string benchmark, operation;  ///< As in "halo" and "an exchange".
    std::vector<std::string_view> columns;
    std::string shape;   ///< What else a line tells; empty for nothing.
    std::string remark;  ///< Printed above the lines; empty for nothing.
  };
  /// By the options --csv, --runs, --milliseconds and --gpus. Rank 0 prints the table's head.
  EdgeTable(const Options& options, const World& world, Words words);

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// One line, after verifying each column before it is timed and after all are. `bytes` is what a rank moves. Collective.
  void measure(int edge, std::size_t bytes, const std::string& shape,
               const std::function<void(std::size_t column)>& once,
               const std::function<void(std::size_t column)>& verify);

 private:
  const World world_;
  const Words words_;
  const int runs_;
  const double budget_;
  const Device device_;
  const int gpus_;
  const std::string turns_;
  Csv csv_;
};

}  // namespace crosslane::bench
