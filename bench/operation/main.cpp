// The benchmark behind `crosslane bench`: one operation at several sizes on device buffers, with Crosslane, with copies
// by hand, and with NCCL where it can be. Rank 0 prints a header and then a JSON line a measurement.
#include "common/mpi_program.h"
#include "common/record.h"
#include "measure.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <climits>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

namespace {

using namespace crosslane::bench;

struct Arguments {
  std::string operation;
  std::vector<std::size_t> sizes;
  int iterations = 0;
  std::string nccl;
};

template <class Number>
Number number(std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw std::runtime_error(fmt::format("'{}' is no number from {} to {}", text, least, most));
  return value;
}

std::vector<std::size_t> sizes(std::string_view text) {
  std::vector<std::size_t> result;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto bytes = number<std::size_t>(text.substr(0, comma), sizeof(float), std::size_t{INT_MAX} * sizeof(float));
    if (bytes % sizeof(float) != 0) throw std::runtime_error(fmt::format("{} bytes are not a multiple of 4", bytes));
    result.push_back(bytes);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return result;
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with("--") && arguments.operation.empty()) {
      arguments.operation = word;
      continue;
    }
    if (i + 1 == count) throw std::runtime_error(fmt::format("{} needs a value", word));
    const std::string_view next = words[++i];
    if (word == "--sizes")
      arguments.sizes = sizes(next);
    else if (word == "--iterations")
      arguments.iterations = number<int>(next, 1, 1'000'000);
    else if (word == "--nccl")
      arguments.nccl = next;
    else
      throw std::runtime_error(fmt::format("unknown option {}", word));
  }
  if (arguments.operation.empty()) arguments.operation = "allreduce";
  if (arguments.sizes.empty()) arguments.sizes = {8, 1024, 32768, 1048576};
  return arguments;
}

void print(const nlohmann::json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

bool run(const Arguments& arguments) {
  const auto [rank, ranks, local] = World::find();
  if (Operation::make(arguments.operation, sizeof(float), rank, ranks) == nullptr)
    throw std::runtime_error(fmt::format("unknown operation {}", arguments.operation));
  const bool between_two =
      arguments.operation == "latency" || arguments.operation == "bandwidth" || arguments.operation == "bidirectional";
  if (between_two && ranks < 2)
    throw std::runtime_error(fmt::format("{} is between two ranks; start 2", arguments.operation));
  const Device device(local);

  nlohmann::json left_out = nlohmann::json::object();
  std::vector<Column> columns;
  // Without it (and without an MPI of CUDA's kind) a device pointer is a segmentation fault.
  if (dlsym(RTLD_DEFAULT, "crosslane_doctor_json") != nullptr)
    columns.push_back({"crosslane", [](const Operation& operation, const Buffers& buffers) {
                         operation.mpi(buffers.send.pointer(), buffers.receive.pointer());
                       }});
  else
    left_out["crosslane"] = "its library is not loaded: start with `crosslane bench`";
  columns.push_back(
      {"by_hand", [](const Operation& operation, const Buffers& buffers) { operation.by_hand(buffers); }});
  std::string reason;
  const std::unique_ptr<Nccl> nccl = Nccl::open(arguments.nccl, local < device.count(), emulated(), reason);
  if (nccl != nullptr)
    columns.push_back({"nccl", [&](const Operation& operation, const Buffers& buffers) {
                         operation.nccl(*nccl, buffers.send.address(), buffers.receive.address(), device.stream());
                         device.wait();
                       }});
  else
    left_out["nccl"] = reason;

  if (rank == 0)
    print({{"operation", arguments.operation},
           {"ranks", ranks},
           {"steps", arguments.sizes.size() * columns.size()},
           {"mpi", mpi_version()},
           {"gpus", fmt::format("{} x {} a node", device.count(), device.name())},
           {"nccl_version", nccl == nullptr ? 0 : nccl->version()},
           {"left_out", left_out},
           {"meaning",
            "median time, of the slowest rank each; GB/s: bytes of one rank's messages, vector or block in it"}});

  bool all_verified = true;
  for (const std::size_t bytes : arguments.sizes) {
    const auto operation = Operation::make(arguments.operation, bytes, rank, ranks);
    for (const Result& result : measure(*operation, columns, arguments.iterations)) {
      all_verified = all_verified && result.verified;
      if (rank == 0)
        print({{"bytes", bytes},
               {"column", result.column},
               {"iterations", result.iterations},
               {"median_us", result.median_us},
               {"min_us", result.min_us},
               {"p99_us", result.p99_us},
               {"gb_per_s", result.gb_per_s},
               {"verified", result.verified}});
    }
  }
  return all_verified;
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int status = 0;
  try {
    status = run(parse(count, words)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crosslane_bench: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return status;
}
