// The tags of transfers: one for each that is under way from this rank, none used again before its last chunk has been
// taken. It must not know what they carry.
#pragma once

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
    for (int tried = 0; tried < team::transfer_tags; ++tried) {
      next_ = (next_ + 1) % team::transfer_tags;
      if (used_[static_cast<std::size_t>(next_)]) continue;
      used_[static_cast<std::size_t>(next_)] = true;
      return team::value(team::Tag::transfers) + next_;
    }
    return std::nullopt;
  }
  void give_back(int tag) {
    const std::lock_guard lock(mutex_);
    used_[static_cast<std::size_t>(tag - team::value(team::Tag::transfers))] = false;
  }

 private:
  std::mutex mutex_;
  int next_ = -1;
  std::vector<bool> used_ = std::vector<bool>(static_cast<std::size_t>(team::transfer_tags));
};

}  // namespace crosslane::message
