// See span_tags.h.
#include "team/span_tags.h"

#include <algorithm>
#include <bit>

namespace crosslane::team {

SpanTags::SpanTags() noexcept {
  for (std::size_t set = 0; set < most_spans; ++set) free_[set / word_bits] |= std::uint64_t{1} << (set % word_bits);
}

void SpanTags::give_back(int set) noexcept {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(set);
  free_[index / word_bits] |= std::uint64_t{1} << (index % word_bits);
}

/// A communicator that looks for a set.
class SpanTags::Seeker {
 public:
  Seeker(SpanTags& tags, const share::TeamKey& key) : tags_(tags), key_(key) {
    const std::lock_guard lock(tags_.mutex_);
    tags_.seeking_.insert(key_);
  }
  ~Seeker() {
    withdraw();
    const std::lock_guard lock(tags_.mutex_);
    tags_.seeking_.erase(key_);
  }
  Seeker(const Seeker&) = delete;
  Seeker& operator=(const Seeker&) = delete;

  /// Fills in what is free, if it is this one's turn to offer it; else nothing.
  bool offer(std::span<std::uint64_t, words> into) {
    const std::lock_guard lock(tags_.mutex_);
    std::ranges::fill(into, 0);
    if (tags_.offering_ || *tags_.seeking_.begin() != key_) return false;
    tags_.offering_ = key_;
    std::ranges::copy(tags_.free_, into.begin());
    return true;
  }
  void take(std::size_t set) {
    const std::lock_guard lock(tags_.mutex_);
    tags_.free_[set / word_bits] &= ~(std::uint64_t{1} << (set % word_bits));
  }
  void withdraw() {
    const std::lock_guard lock(tags_.mutex_);
    if (tags_.offering_ == key_) tags_.offering_.reset();
  }

 private:
  SpanTags& tags_;
  const share::TeamKey key_;
};

engine::Task<std::optional<int>> SpanTags::agree(Messenger members, share::TeamKey key, bool willing) {
  constexpr std::uint64_t yes = ~std::uint64_t{0};
  Seeker seeker(*this, key);
  for (;;) {
    // Whether this rank is willing, whether it offers anything, and what.
    std::array<std::uint64_t, 2 + words> bits{};
    bits[0] = willing ? yes : 0;
    bits[1] = seeker.offer(std::span{bits}.subspan<2, words>()) ? yes : 0;
    co_await members.all_and(bits);
    if (bits[0] == 0) co_return std::nullopt;
    if (bits[1] == 0) {
      seeker.withdraw();
      continue;
    }
    const auto* const word =
        std::ranges::find_if(bits.begin() + 2, bits.end(), [](std::uint64_t some) { return some != 0; });
    if (word == bits.end()) co_return std::nullopt;
    const std::size_t set = static_cast<std::size_t>(word - bits.begin() - 2) * word_bits +
                            static_cast<std::size_t>(std::countr_zero(*word));
    seeker.take(set);
    co_return static_cast<int>(set);
  }
}

}  // namespace crosslane::team
