// The tracer: names of files, valid JSON, the ring's wrap, counters.
#include "trace/tracer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace {

using crosslane::trace::Counter;
using crosslane::trace::Tracer;

TEST(Tracer, OneFileARank) {
  EXPECT_EQ(Tracer::file_of("out.json", 3), "out.3.json");
  EXPECT_EQ(Tracer::file_of("/tmp/a.b/out", 0), "/tmp/a.b/out.0.json");
}

TEST(Tracer, OffRecordsNothing) {
  Tracer tracer{"", false};
  { const auto span = tracer.span("nothing"); }
  tracer.count(Counter::bytes_to_gpu, 10);
  EXPECT_EQ(tracer.count_of(Counter::bytes_to_gpu), 0U);
  EXPECT_FALSE(tracer.spans_on());
  tracer.write(0);
}

TEST(Tracer, KeepsTheLatestSpansAsJson) {
  const auto folder = std::filesystem::temp_directory_path() / ("crosslane_trace_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Tracer tracer{folder / "out.json", true, 64};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 50; ++i) {
        const auto span = tracer.span("MPI_Send", i);
        tracer.count(Counter::calls_forwarded);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  testing::internal::CaptureStderr();
  tracer.write(2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("calls forwarded: 200"), std::string::npos) << log;
  EXPECT_NE(log.find("the oldest 136 of 200"), std::string::npos) << log;
  const auto json = nlohmann::json::parse(std::ifstream{folder / "out.2.json"});
  ASSERT_EQ(json["traceEvents"].size(), 65U);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["name"], "MPI_Send");
    EXPECT_EQ(event["pid"], 2);
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
