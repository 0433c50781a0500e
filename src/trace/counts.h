// Counts: how many calls went which way and how many bytes they had, for CROSSLANE_STATS. It must not know what the ways mean.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace crosslane::trace {

class Counts {
 public:
  /// Any thread. Both texts must outlive this object (literals).
  void add(std::string_view call, std::string_view route, std::uint64_t bytes);

  /// A table with a title, ordered by call and route; says so where nothing was counted. Ends without a new line.
  [[nodiscard]] std::string table() const;

 private:
  struct Row {
    std::uint64_t calls = 0, bytes = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string_view, std::string_view>, Row> rows_;
};

}  // namespace crosslane::trace
