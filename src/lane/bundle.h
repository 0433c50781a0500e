// Short copies of one stream that wait to be enqueued together: which ones they are, and what they touch, so that what has to come behind one of them
// does. It must not know how they are enqueued.
#pragma once

#include "kernel/copies.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::lane {

/// Addresses from `begin` to before `end`.
struct Reach {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool meets(const Reach& other) const noexcept { return begin < other.end && other.begin < end; }
};

/// What of them one launch takes. For one thread at a time.
class Bundle {
 public:
  /// What is longer is worth a launch of its own. Two H200 copy 256 KiB within 1 us, and start to within 3.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;

  [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
  /// Whether that copy is to come behind what is in here: there is no more room, or both touch the same bytes and one writes them.
  [[nodiscard]] bool precedes(const Reach& to, const Reach& from) const noexcept;
  void add(const kernel::Part& part, const Reach& to, const Reach& from);
  /// What each of them touches, where it writes and where it reads.
  [[nodiscard]] const std::vector<std::pair<Reach, Reach>>& touched() const noexcept { return touched_; }
  [[nodiscard]] std::span<const kernel::Part> parts() const noexcept { return parts_; }
  void clear() noexcept {
    parts_.clear();
    touched_.clear();
  }

 private:
  std::vector<kernel::Part> parts_;
  std::vector<std::pair<Reach, Reach>> touched_;
};

}  // namespace crosslane::lane
