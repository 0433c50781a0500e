// The tags of transfers: one for each that is under way from this rank, none used again before its last chunk has been
// taken. It must not know what they carry.
#pragma once

#include "base/light_mutex.h"
#include "team/tags.h"

#include <mutex>
#include <optional>
#include <vector>

namespace crosslane::message {

class Tags {
 public:
  /// Nothing when all are in use: so many payloads wait for their receivers.
  [[nodiscard]] std::optional<int> take() {
    const std::lock_guard lock(mutex_);
    if (in_use_ == team::transfer_tags) return std::nullopt;
    do {
      next_ = (next_ + 1) % team::transfer_tags;
    } while (used_[static_cast<std::size_t>(next_)]);
    used_[static_cast<std::size_t>(next_)] = true;
    ++in_use_;
    return team::value(team::Tag::transfers) + next_;
  }
  void give_back(int tag) {
    const std::lock_guard lock(mutex_);
    const auto which = static_cast<std::size_t>(tag - team::value(team::Tag::transfers));
    if (used_[which]) --in_use_;
    used_[which] = false;
  }

 private:
  base::LightMutex mutex_;
  int next_ = -1, in_use_ = 0;
  std::vector<bool> used_ = std::vector<bool>(static_cast<std::size_t>(team::transfer_tags));
};

}  // namespace crosslane::message
