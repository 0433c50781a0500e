// See record.h.
#include "common/record.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace crosslane::bench {
namespace {

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
  return result + '"';
}

// The values of a line that Csv has written.
std::vector<std::string> values_of(const std::string& line) {
  std::vector<std::string> values{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

std::size_t place_of(const std::string& column, const std::vector<std::string>& header) {
  const auto found = std::find(header.begin(), header.end(), column);
  if (found == header.end()) throw std::runtime_error(fmt::format("no column {}", column));
  return static_cast<std::size_t>(found - header.begin());
}

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  std::string name = "unknown processor";
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) {
      name = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const int cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 0;
  return fmt::format("{}, {} cores", name, cores);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all{text.data(), static_cast<std::size_t>(length)};
  std::string first{all.substr(0, all.find_first_of(",\n"))};
  std::replace(first.begin(), first.end(), '\t', ' ');  // "MPICH Version:\t4.0.2"
  return first;
}

Csv::Csv(const std::string& file, Machine machine, const std::vector<std::string>& columns)
    : machine_(std::move(machine)), processor_(processor()), mpi_(mpi_version()), columns_(columns.size()) {
  if (file.empty()) return;
  file_ = std::fopen(file.c_str(), "a");
  if (file_ == nullptr) throw std::runtime_error(fmt::format("{} cannot be written", file));
  std::fseek(file_, 0, SEEK_END);
  if (std::ftell(file_) != 0) return;
  std::string header = "benchmark,processor,gpu,mpi,crosslane";
  for (const auto& column : columns) header += ',' + column;
  fmt::print(file_, "{}\n", header);
}

Csv::~Csv() {
  if (file_ != nullptr) std::fclose(file_);
}

void Csv::row(const std::vector<std::string>& values) {
  if (values.size() != columns_) throw std::logic_error("a row has another number of values than the header");
  if (file_ == nullptr) return;
  std::string line = fmt::format("{},{},{},{},{}", machine_.benchmark, quoted_text(processor_),
                                 quoted_text(machine_.gpu), quoted_text(mpi_), CROSSLANE_BENCH_VERSION);
  for (const auto& value : values)
    line += ',' + (value.find_first_of(",\" ") == value.npos ? value : quoted_text(value));
  fmt::print(file_, "{}\n", line);
  std::fflush(file_);
}

std::map<std::string, double> medians(const std::string& file, const std::vector<std::string>& keys,
                                      const std::string& value) {
  std::ifstream input(file);
  std::string line;
  if (!std::getline(input, line)) return {};
  const auto header = values_of(line);
  std::map<std::string, std::vector<double>> all;
  while (std::getline(input, line)) {
    const auto values = values_of(line);
    std::string key;
    for (const auto& column : keys) key += (key.empty() ? "" : "/") + values.at(place_of(column, header));
    all[key].push_back(std::stod(values.at(place_of(value, header))));
  }
  std::map<std::string, double> result;
  for (const auto& [key, numbers] : all) result[key] = median(numbers);
  return result;
}

}  // namespace crosslane::bench
