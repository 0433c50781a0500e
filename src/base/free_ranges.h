// FreeRanges: which parts of a range are free, first fit, neighbours joined. It must not know what the range is of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>

namespace crosslane::base {

/// Of a range of `size` units; all of it is free at first. Not thread-safe.
class FreeRanges {
 public:
  FreeRanges() = default;
  explicit FreeRanges(std::size_t size) {
    if (size != 0) free_.emplace(0, size);
  }

  /// Where the lowest free part of that size begins, which is taken from now on; nothing where none is so large.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size) {
    const auto fits = std::ranges::find_if(free_, [&](const auto& range) { return range.second >= size; });
    if (fits == free_.end()) return std::nullopt;
    const auto [begin, length] = *fits;
    free_.erase(fits);
    if (length != size) free_.emplace(begin + size, length - size);
    return begin;
  }

  /// What take() gave.
  void give_back(std::size_t begin, std::size_t size) {
    const auto range = free_.emplace(begin, size).first;
    if (const auto next = std::next(range); next != free_.end() && begin + size == next->first) {
      range->second += next->second;
      free_.erase(next);
    }
    if (range == free_.begin()) return;
    if (const auto before = std::prev(range); before->first + before->second == begin) {
      before->second += range->second;
      free_.erase(range);
    }
  }

 private:
  std::map<std::size_t, std::size_t> free_;  // begin -> size, never adjacent
};

}  // namespace crosslane::base
