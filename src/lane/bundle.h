// Short copies of one stream that wait to be enqueued together: which ones they are, and what they touch, so that what has to come behind one of them
// does. It must not know how they are enqueued.
#pragma once

#include "kernel/copies.h"
#include "lane/reach.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crosslane::lane {

/// What of them one launch takes. For one thread at a time.
class Bundle {
 public:
  /// Of a copy: what is longer is worth a launch of its own. Two H200 copy so much within 1 us, and start to within 3.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;
  /// Of all of them: what is left to be done by the call that completes them takes 3 us then.
  static constexpr std::size_t most_bytes_together = std::size_t{1} << 20;

  struct Touched {
    Reach written, read;
  };

  [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
  /// Whether that copy is to come behind what is in here: there is no more room, or both touch the same bytes and one writes them.
  [[nodiscard]] bool precedes(const kernel::Part& part, const Touched& touched) const noexcept;
  void add(const kernel::Part& part, const Touched& touched);
  /// Takes those out of which `is_gone(touched)` says so.
  template <class IsGone>
  void drop_if(const IsGone& is_gone) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (is_gone(touched_[i])) continue;
      parts_[kept] = parts_[i];
      touched_[kept++] = touched_[i];
    }
    parts_.resize(kept);
    touched_.resize(kept);
  }
  [[nodiscard]] std::span<const kernel::Part> parts() const noexcept { return parts_; }
  void clear() noexcept {
    parts_.clear();
    touched_.clear();
    bytes_ = 0;
  }

 private:
  std::vector<kernel::Part> parts_;
  std::vector<Touched> touched_;  // by each of them
  std::size_t bytes_ = 0;
};

}  // namespace crosslane::lane
