// See counts.h.
#include "trace/counts.h"

#include <fmt/core.h>

#include <algorithm>

namespace crosslane::trace {
namespace {

// Three digits that matter: "1.25 MiB".
std::string readable(std::uint64_t bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace

void Counts::add(std::string_view call, std::string_view route, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[{call, route}];
  ++row.calls;
  row.bytes += bytes;
}

std::string Counts::table() const {
  const std::lock_guard lock(mutex_);
  if (rows_.empty()) return "calls with GPU memory: none";
  constexpr std::string_view call_title = "procedure", route_title = "route", calls_title = "calls";
  std::size_t call_width = call_title.size(), route_width = route_title.size();
  for (const auto& [names, row] : rows_) {
    call_width = std::max(call_width, names.first.size());
    route_width = std::max(route_width, names.second.size());
  }
  constexpr int number_width = 12;
  std::string text = "calls with GPU memory, and the bytes of their buffers:";
  const auto line = [&](std::string_view call, std::string_view route, std::string_view calls, std::string_view bytes) {
    text += fmt::format("\n  {:<{}}  {:<{}}  {:>{}}  {:>{}}", call, call_width, route, route_width, calls, number_width,
                        bytes, number_width);
  };
  line(call_title, route_title, calls_title, "bytes");
  for (const auto& [names, row] : rows_)
    line(names.first, names.second, fmt::format("{}", row.calls), readable(row.bytes));
  return text;
}

}  // namespace crosslane::trace
