// Logging: one line a fact, to standard error, prefixed with the rank once it is known.
// What is printed is chosen by CROSSLANE_LOG (Settings::log); warnings and errors are always printed.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace crosslane::base {

/// The kinds of line, each switched on by its name in CROSSLANE_LOG; error and warning are always on.
enum class Topic { error, warning, info, route, debug };

namespace log_detail {
void write(Topic topic, fmt::string_view format, fmt::format_args arguments) noexcept;
}  // namespace log_detail

/// Sets which topics are printed: a comma-separated list of topic names, or "all"; throws Error on an unknown name.
void set_log_topics(std::string_view topics);

/// Sets the prefix's rank; a negative one prints the process identifier instead.
void set_log_rank(int rank) noexcept;

/// True if lines of this topic are printed: ask before building an expensive line.
[[nodiscard]] bool log_enabled(Topic topic) noexcept;

/// Prints one line if its topic is on. Where there is no memory for it, the format alone.
template <class... Arguments>
void log(Topic topic, fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
  if (log_enabled(topic)) log_detail::write(topic, format, fmt::make_format_args(arguments...));
}

}  // namespace crosslane::base
