// Each call that passes messages of GPU memory is counted once, whichever way it goes, each start of a persistent one too; and its span tells the bytes of
// its buffer. Against what the program knows that it called; it must not know Crosslane's sources.
//   --folder <folder>  where this test may write; --trace <file> in it; --halves <n>: of combined calls each of two, where they go their own ways
#include "see/told.h"
#include "support/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

using Json = nlohmann::json;

// Staged; with a token; read by one kernel or another; in pieces where settings say so. Often enough that the ranks have met.
constexpr std::array<int, 5> lengths{4, 64, 4096, 100'000, 1'500'000};
constexpr int rounds = 12;

using Calls = std::map<std::string, int>;

class Exchange {
 public:
  explicit Exchange(const Program& program)
      : halves_(static_cast<int>(program.option("halves", 2))),
        peer_(program.rank ^ 1),
        first_(program.rank == 0),
        send_(MemoryKind::device, lengths.back()),
        receive_(MemoryKind::device, lengths.back()) {}

  // What this rank calls.
  Calls all() {
    for (int round = 0; round < rounds; ++round) {
      for (const int bytes : lengths) {
        CROSSLANE_STEP("round {}, {} bytes", round, bytes);
        blocking(bytes);
        nonblocking(bytes);
        combined(bytes);
      }
    }
    for (const int bytes : lengths) persistent(bytes);
    return calls_;
  }

 private:
  void blocking(int bytes) {
    for (const bool turn : {true, false}) {
      if (first_ == turn) {
        CROSSLANE_MPI(MPI_Send(send_.data(), bytes, MPI_BYTE, peer_, 1, MPI_COMM_WORLD));
        ++calls_["MPI_Send"];
      } else {
        CROSSLANE_MPI(MPI_Recv(receive_.data(), bytes, MPI_BYTE, peer_, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        ++calls_["MPI_Recv"];
      }
    }
  }
  void nonblocking(int bytes) {
    std::vector<MPI_Request> requests(2);
    CROSSLANE_MPI(MPI_Irecv(receive_.data(), bytes, MPI_BYTE, peer_, 2, MPI_COMM_WORLD, &requests[0]));
    CROSSLANE_MPI(MPI_Isend(send_.data(), bytes, MPI_BYTE, peer_, 2, MPI_COMM_WORLD, &requests[1]));
    polite_waitall(requests);
    ++calls_["MPI_Irecv"];
    ++calls_["MPI_Isend"];
  }
  void combined(int bytes) {
    CROSSLANE_MPI(MPI_Sendrecv(send_.data(), bytes, MPI_BYTE, peer_, 3, receive_.data(), bytes, MPI_BYTE, peer_, 3,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    calls_["MPI_Sendrecv"] += halves_;
  }
  void persistent(int bytes) {
    std::vector<MPI_Request> requests(2);
    CROSSLANE_MPI(MPI_Recv_init(receive_.data(), bytes, MPI_BYTE, peer_, 4, MPI_COMM_WORLD, &requests[0]));
    CROSSLANE_MPI(MPI_Send_init(send_.data(), bytes, MPI_BYTE, peer_, 4, MPI_COMM_WORLD, &requests[1]));
    for (int round = 0; round < rounds; ++round) {
      CROSSLANE_MPI(MPI_Startall(2, requests.data()));
      CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
    }
    for (MPI_Request& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
    for (const char* const call : {"MPI_Recv_init", "MPI_Send_init"}) {
      calls_[call] += rounds;
      ++calls_[std::string(call) + " prepared"];
    }
  }

  int halves_, peer_;
  bool first_;
  Memory send_, receive_;
  Calls calls_;
};

// Apart from making persistent requests.
Calls sums(const CountedCalls& rows) {
  Calls all;
  for (const auto& [row, calls] : rows) {
    const auto& [call, route] = row;
    all[route == "prepared" ? call + " prepared" : call] += calls;
  }
  return all;
}

std::string text(const Calls& calls) {
  std::string all;
  for (const auto& [call, number] : calls) all += fmt::format(" {} {}", call, number);
  return all;
}

// How many of each call have so many bytes.
void check_trace(const std::string& file) {
  const Json trace = Json::parse(std::ifstream(file), nullptr, false);
  CROSSLANE_CHECK(trace.contains("traceEvents"), "{} is no trace", file);
  if (!trace.contains("traceEvents")) return;
  std::map<std::string, std::map<int, int>> spans;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "call") ++spans[event["name"]][event["args"]["bytes"].get<int>()];
  const auto check = [&](const char* call, int bytes) {
    CROSSLANE_CHECK(spans[call][bytes] == rounds, "{} spans of {} bytes: {}", call, bytes, spans[call][bytes]);
  };
  for (const int bytes : lengths) {
    for (const char* const call : {"MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv"}) check(call, bytes);
    check("MPI_Sendrecv", 2 * bytes);
  }
  std::remove(file.c_str());
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "see_calls");
  const std::string folder = program.text_option("folder", "."), trace = program.text_option("trace", "");
  const int rank = program.rank;
  const Calls made = Exchange(program).all();
  const auto [status, told] = finish_and_hear(program, folder);
  const Calls rows = sums(counted(told, fmt::format("[rank {}] info: calls with GPU memory", rank)));
  CROSSLANE_CHECK(rows == made, "called{}, counted{}\n{}", text(made), text(rows), told);
  const auto dot = trace.find('.');
  check_trace(fmt::format("{}/{}.{}{}", folder, trace.substr(0, dot), rank, trace.substr(dot)));
  return failures() > 0 ? 1 : status;
}
