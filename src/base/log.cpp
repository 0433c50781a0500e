// The logger behind base/log.h: spdlog's standard-error sink, one line a message.
#include "base/log.h"

#include "base/error.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

namespace crosslane::base {
namespace {

struct TopicName {
  Topic topic;
  std::string_view name;
};
constexpr std::array<TopicName, 5> topic_names{{{Topic::error, "error"},
                                                {Topic::warning, "warning"},
                                                {Topic::info, "info"},
                                                {Topic::route, "route"},
                                                {Topic::debug, "debug"}}};

constexpr unsigned bit(Topic topic) { return 1U << static_cast<unsigned>(topic); }

// The logger is the one thing that every rank of a simulated job may share: it holds no state of a rank but its prefix.
struct Logger {
  std::atomic<unsigned> topics{bit(Topic::error) | bit(Topic::warning)};
  std::atomic<int> rank{-1};
  spdlog::logger sink{"crosslane", std::make_shared<spdlog::sinks::stderr_sink_mt>()};

  Logger() {
    sink.set_pattern("%v");
    sink.set_level(spdlog::level::trace);
  }
};

Logger& logger() {
  static Logger* const instance = new Logger;  // never destroyed: destructors of other libraries may still log
  return *instance;
}

}  // namespace

void set_log_topics(std::string_view topics) {
  unsigned enabled = bit(Topic::error) | bit(Topic::warning);
  while (!topics.empty()) {
    const auto comma = topics.find(',');
    const auto word = topics.substr(0, comma);
    topics = comma == std::string_view::npos ? std::string_view{} : topics.substr(comma + 1);
    if (word.empty()) continue;
    if (word == "all") {
      enabled = ~0U;
      continue;
    }
    bool known = false;
    for (const auto& [topic, name] : topic_names) {
      if (word == name) {
        enabled |= bit(topic);
        known = true;
      }
    }
    if (!known)
      throw Error(
          ErrorClass::argument,
          "CROSSLANE_LOG: unknown topic \"{}\"; the topics are info, route, debug and all (errors and warnings are "
          "always printed)",
          word);
  }
  logger().topics.store(enabled, std::memory_order_relaxed);
}

void set_log_rank(int rank) noexcept { logger().rank.store(rank, std::memory_order_relaxed); }

bool log_enabled(Topic topic) noexcept { return (logger().topics.load(std::memory_order_relaxed) & bit(topic)) != 0; }

void log_detail::write(Topic topic, fmt::string_view format, fmt::format_args arguments) noexcept {
  const std::string_view name = topic_names[static_cast<std::size_t>(topic)].name;
  try {
    const int rank = logger().rank.load(std::memory_order_relaxed);
    const auto who = rank >= 0 ? fmt::format("rank {}", rank) : fmt::format("process {}", getpid());
    logger().sink.info(fmt::format("crosslane [{}] {}: {}", who, name, fmt::vformat(format, arguments)));
  } catch (const std::exception&) {
    for (const auto part : {std::string_view("crosslane "), name, std::string_view(" (no memory for more): "),
                            std::string_view(format.data(), format.size()), std::string_view("\n")})
      static_cast<void>(std::fwrite(part.data(), 1, part.size(), stderr));  // which has no buffer
  }
}

}  // namespace crosslane::base
