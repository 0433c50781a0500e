// UnderWay: transfers that have begun and are not over yet: whether they keep busy what moves them. It must not know what that is.
#pragma once

#include "engine/completion.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace crosslane::message {

/// For one thread at a time.
class UnderWay {
 public:
  /// So much takes longer than who begins the next ones is away. And twice as many as there are streams for them: those in two streams share what a
  /// link brings, end at once, and would leave it with nothing to do.
  static constexpr std::size_t enough_bytes = std::size_t{12} << 20, enough_transfers = 4;

  void add(std::size_t bytes, const engine::Completion& done) {
    forget_what_is_over();
    each_.emplace_back(bytes, done);
    bytes_ += bytes;
  }
  void forget_what_is_over() noexcept {
    std::erase_if(each_, [this](const auto& each) {
      if (!each.second.done()) return false;
      bytes_ -= each.first;
      return true;
    });
  }
  /// As of the last call of these.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_enough() const noexcept { return bytes_ >= enough_bytes && each_.size() >= enough_transfers; }

 private:
  std::vector<std::pair<std::size_t, engine::Completion>> each_;
  std::size_t bytes_ = 0;
};

}  // namespace crosslane::message
