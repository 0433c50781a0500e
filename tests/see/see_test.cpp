// Where calls went, as users see it: the table of CROSSLANE_STATS and the file of CROSSLANE_TRACE, read back after MPI_Finalize,
// and NVTX ranges; each of them against what the program knows that it called. It must not know Crosslane's sources.
//   --folder <folder>  where this test may write; --trace <file> in it, --stats 1, --nvtx 1: what the environment asked for
#include "see/told.h"
#include "support/direct_calls.h"
#include "support/program.h"
#include "support/sharing.h"

#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

using Json = nlohmann::json;

constexpr int count = 4096;
constexpr int reductions = 6;
constexpr int messages = 3;
constexpr std::size_t bytes = count * sizeof(float);

void communicate(Program& program) {
  Memory send(MemoryKind::device, bytes), receive(MemoryKind::device, bytes);
  send.fill(std::vector<float>(count, 1.0F));
  for (int i = 0; i < reductions; ++i) {
    CROSSLANE_STEP("reduction {}", i);
    CROSSLANE_MPI(MPI_Allreduce(send.data(), receive.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  }
  CROSSLANE_CHECK_EQUAL(receive.values<float>().back(), static_cast<float>(program.size));
  // Host memory, which is no affair of ours.
  std::vector<float> host(count);
  for (int i = 0; i < reductions; ++i)
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, host.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  for (int i = 0; i < messages; ++i) {
    CROSSLANE_STEP("message {}", i);
    if (program.rank == 0) {
      CROSSLANE_MPI(MPI_Send(send.data(), count, MPI_FLOAT, 1, i, MPI_COMM_WORLD));
    } else if (program.rank == 1) {
      CROSSLANE_MPI(MPI_Recv(receive.data(), count, MPI_FLOAT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
  }
  // Three starts of one persistent operation.
  MPI_Request request = MPI_REQUEST_NULL;
  const int peer = program.rank ^ 1;
  if (program.rank == 0) {
    CROSSLANE_MPI(MPI_Send_init(send.data(), count, MPI_FLOAT, peer, 99, MPI_COMM_WORLD, &request));
    for (int i = 0; i < messages; ++i) {
      CROSSLANE_MPI(MPI_Start(&request));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    CROSSLANE_MPI(MPI_Request_free(&request));
  } else {
    for (int i = 0; i < messages; ++i)
      CROSSLANE_MPI(MPI_Recv(host.data(), count, MPI_FLOAT, peer, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
}

void check_stats(const std::string& text, const Program& program, int direct) {
  const auto rows = counted(text, fmt::format("[rank {}] info: calls with GPU memory", program.rank));
  const auto calls = [&](const char* call, const char* route) {
    const auto found = rows.find({call, route});
    return found == rows.end() ? 0 : found->second;
  };
  CROSSLANE_CHECK_EQUAL(calls("MPI_Allreduce", "ll"), direct);
  CROSSLANE_CHECK_EQUAL(calls("MPI_Allreduce", "staged"), reductions - direct);
  CROSSLANE_CHECK_EQUAL(calls(program.rank == 0 ? "MPI_Send" : "MPI_Recv", "staged"), messages);
  CROSSLANE_CHECK_EQUAL(calls("MPI_Send_init", "prepared"), program.rank == 0 ? 1 : 0);
  CROSSLANE_CHECK_EQUAL(calls("MPI_Send_init", "staged"), program.rank == 0 ? messages : 0);
  // Both ways of a reduction, unless all went one.
  const std::size_t ways = direct == 0 || direct == reductions ? 1 : 2;
  CROSSLANE_CHECK(rows.size() == ways + (program.rank == 0 ? 3 : 1), "{}", text);
}

bool within(const Json& inner, const Json& outer) {
  const double begin = inner["ts"], end = begin + inner["dur"].get<double>();
  const double from = outer["ts"], to = from + outer["dur"].get<double>();
  constexpr double rounding = 0.01;
  return inner["tid"] == outer["tid"] && begin >= from - rounding && end <= to + rounding;
}

void check_trace(const std::string& file, const Program& program, int direct) {
  const Json trace = Json::parse(std::ifstream(file), nullptr, false);
  CROSSLANE_CHECK(trace.contains("traceEvents"), "{} is no trace", file);
  if (!trace.contains("traceEvents")) return;
  std::vector<Json> reduces, kernels;
  int copies = 0, waits = 0, sends = 0;
  for (const Json& event : trace["traceEvents"]) {
    CROSSLANE_CHECK_EQUAL(event["pid"].get<int>(), program.rank);
    if (event["ph"] != "X") continue;
    const std::string kind = event["cat"], name = event["name"];
    copies += kind == "copy" ? 1 : 0;
    waits += kind == "wait" ? 1 : 0;
    if (kind == "kernel") kernels.push_back(event);
    if (kind == "call" && name == "MPI_Allreduce") reduces.push_back(event);
    if (kind == "call" && (name == "MPI_Send" || name == "MPI_Recv")) ++sends;
  }
  CROSSLANE_CHECK_EQUAL(static_cast<int>(reduces.size()), reductions);
  CROSSLANE_CHECK_EQUAL(static_cast<int>(kernels.size()), direct);
  CROSSLANE_CHECK_EQUAL(sends, messages);
  // Staged reductions copy both ways, messages one way; each copy is waited for, and each kernel.
  CROSSLANE_CHECK(copies >= 2 * (reductions - direct) + messages, "{} copies", copies);
  CROSSLANE_CHECK(waits >= copies + direct, "{} waits, {} copies", waits, copies);
  for (const Json& call : reduces) CROSSLANE_CHECK_EQUAL(call["args"]["bytes"].get<std::size_t>(), 2 * bytes);
  for (const Json& kernel : kernels) {
    CROSSLANE_CHECK_EQUAL(kernel["name"].get<std::string>(), std::string("ll"));
    bool inside = false;
    for (const Json& call : reduces) inside = inside || within(kernel, call);
    CROSSLANE_CHECK(inside, "a kernel outside of its call: {}", kernel.dump());
  }
  std::remove(file.c_str());
}

int ask_listener(const char* symbol, const char* name) {
  void* const listener = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
  void* const function = listener == nullptr ? nullptr : dlsym(listener, symbol);
  CROSSLANE_CHECK(function != nullptr, "NVTX did not load its listener");
  return function == nullptr ? -1 : reinterpret_cast<int (*)(const char*)>(function)(name);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "see");
  const std::string folder = program.text_option("folder", ".");
  const bool in_turns = take_turns(MPI_COMM_WORLD);
  communicate(program);
  const auto direct = static_cast<int>(direct_calls("allreduce"));
  // So short ones are staged where ranks take turns on a GPU.
  CROSSLANE_CHECK(in_turns ? direct == 0 : direct > 0 && direct <= reductions, "{} reductions went direct", direct);
  if (program.option("nvtx", 0) != 0) {
    CROSSLANE_CHECK_EQUAL(ask_listener("nvtx_listener_ranges", "ll"), direct);
    CROSSLANE_CHECK(ask_listener("nvtx_listener_ranges", "MPI_Allreduce") >= reductions, "calls are ranges");
    CROSSLANE_CHECK_EQUAL(ask_listener("nvtx_listener_open", nullptr), 0);
  }
  const bool stats = program.option("stats", 0) != 0;
  const std::string trace = program.text_option("trace", "");
  const int rank = program.rank;
  const auto [status, told] = finish_and_hear(program, folder);
  if (stats) {
    check_stats(told, program, direct);
  } else {
    CROSSLANE_CHECK(told.find("calls with GPU memory") == std::string::npos, "{}", told);
  }
  if (!trace.empty()) {
    const auto dot = trace.find('.');
    check_trace(fmt::format("{}/{}.{}{}", folder, trace.substr(0, dot), rank, trace.substr(dot)), program, direct);
  }
  return failures() > 0 ? 1 : status;
}
