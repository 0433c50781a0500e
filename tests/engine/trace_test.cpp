// The tracer: names of files, valid JSON, the ring's wrap; and the table of counts.
#include "base/error.h"
#include "trace/counts.h"
#include "trace/tracer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace {

using crosslane::trace::Counts;
using crosslane::trace::Kind;
using crosslane::trace::Span;
using crosslane::trace::Tracer;

TEST(Tracer, OneFileARank) {
  EXPECT_EQ(Tracer::file_of("out.json", 3), "out.3.json");
  EXPECT_EQ(Tracer::file_of("/tmp/a.b/out", 0), "/tmp/a.b/out.0.json");
  EXPECT_EQ(Tracer::file_of("/tmp/a.b/.out", 0), "/tmp/a.b/.out.0.json");
  EXPECT_EQ(Tracer::file_of(".out", 1), ".out.1.json");
}

TEST(Tracer, WithoutAFileRecordsNothing) {
  { const Span nothing(nullptr, Kind::call, "nothing"); }
  Tracer tracer{""};
  { const Span span(&tracer, Kind::call, "nothing"); }
  tracer.open(0);
  tracer.write(0);
}

TEST(Tracer, RefusesAFileThatCannotBe) {
  const Tracer tracer{"/nonexistent/folder/out.json"};
  EXPECT_THROW(tracer.open(1), crosslane::base::Error);
  EXPECT_THROW(Tracer::try_to_open("/nonexistent/folder/out.json", 1), crosslane::base::Error);
  for (const char* const folder : {"/tmp", "/tmp/"}) {
    EXPECT_THROW(Tracer{folder}.open(1), crosslane::base::Error);
    EXPECT_THROW(Tracer::try_to_open(folder, 1), crosslane::base::Error);
  }
}

TEST(Tracer, WritesWhereItWasMade) {
  const auto before = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / ("crosslane_going_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "run");
  std::filesystem::current_path(folder);
  const Tracer tracer{"out.json"};
  tracer.open(2);
  std::filesystem::current_path(folder / "run");
  tracer.write(2);
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(folder / "out.2.json"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "run"));
  std::filesystem::remove_all(folder);
}

TEST(Tracer, TryingToOpenAFileChangesNothing) {
  const auto folder = std::filesystem::temp_directory_path() / ("crosslane_trying_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Tracer::try_to_open(folder / "out.json", 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::ofstream{folder / "out.0.json"} << "kept";
  Tracer::try_to_open(folder / "out.json", 0);
  std::string text;
  std::ifstream{folder / "out.0.json"} >> text;
  EXPECT_EQ(text, "kept");
  std::filesystem::remove_all(folder);
}

TEST(Tracer, KeepsTheLatestSpansAsJson) {
  const auto folder = std::filesystem::temp_directory_path() / ("crosslane_trace_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Tracer tracer{folder / "out.json", false, 64};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 25; ++i) {
        Span call(&tracer, Kind::call, "MPI_Send");
        { const Span wait(&tracer, Kind::wait, "wait", i); }
        call.set_bytes(i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  testing::internal::CaptureStderr();
  tracer.write(2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the oldest 136 of 200"), std::string::npos) << log;
  const auto json = nlohmann::json::parse(std::ifstream{folder / "out.2.json"});
  ASSERT_EQ(json["traceEvents"].size(), 65U);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["name"], event["cat"] == "call" ? "MPI_Send" : "wait");
    EXPECT_EQ(event["pid"], 2);
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  std::filesystem::remove_all(folder);
}

TEST(Counts, AddUpByCallAndRoute) {
  Counts counts;
  EXPECT_EQ(counts.table(), "calls with GPU memory: none");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) counts.add("MPI_Send", "staged", 1024);
    });
  }
  for (auto& thread : threads) thread.join();
  counts.add("MPI_Allreduce", "two_shot", 12);
  EXPECT_EQ(counts.table(),
            "calls with GPU memory, and the bytes of their buffers:\n"
            "  procedure      route            calls         bytes\n"
            "  MPI_Allreduce  two_shot             1          12 B\n"
            "  MPI_Send       staged             100    100.00 KiB");
}

}  // namespace
