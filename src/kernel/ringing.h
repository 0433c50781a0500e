// How a host rings a kernel that stays (lingering.h): a call as the words that it is told by, and these as the packets that it looks at. It must
// not know when that pays, nor what the kernel says.
#pragma once

#include "kernel/lingering.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace crosslane::kernel {

/// What a kernel that stays is told of one call: the value for its `done`, and the words that differ (told.h).
class ToldCall {
 public:
  template <class Parameters>
  ToldCall(const Parameters& parameters, std::uint64_t done_value, std::uint32_t members) noexcept
      : count_(1 + told_words<Parameters>(members) + told_also(parameters).words) {
    words_[0] = done_value;
    const auto* const all = reinterpret_cast<const std::byte*>(&parameters);
    const ToldAlso also = told_also(parameters);
    const std::uint32_t told = count_ - also.words;
    for (std::uint32_t k = 1; k < told; ++k)
      std::memcpy(&words_[k], all + told_place<Parameters>(k - 1, members) * sizeof(std::uint64_t),
                  sizeof(std::uint64_t));
    std::memcpy(words_.data() + told, all + also.begin * sizeof(std::uint64_t), also.words * sizeof(std::uint64_t));
  }
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return std::span(words_).first(count_); }

 private:
  std::array<std::uint64_t, told_room(most_members)> words_;  // as far as `count_`
  std::uint32_t count_;
};

/// Rings, for that call, or to leave, for none. Whole, whichever kernel reads it: `room` words in any case, and of the `also` ones that only
/// some calls bring those that this one does. But now and then all of them: so no flag of 2^32 rings ago is left. The last store is ordered
/// before what is loaded next.
inline void write_ring(Bell& bell, std::uint64_t ring, std::span<const std::uint64_t> call, std::uint32_t room,
                       std::uint32_t also) noexcept {
  constexpr std::uint64_t seldom = 4096;
  const std::uint64_t flag = std::uint64_t{Bell::flag_of(ring)} << 32;
  const std::size_t whole = room + also;
  for (std::size_t k = ring % seldom == 0 ? whole : std::max<std::size_t>(room, call.size()); k-- != 0;) {
    const std::uint64_t word = k < call.size() ? call[k] : 0;
    const auto order = k == 0 ? std::memory_order_seq_cst : std::memory_order_relaxed;
    std::atomic_ref(bell.request[k].low).store((word & 0xffffffffU) | flag, std::memory_order_release);
    std::atomic_ref(bell.request[k].high).store(word >> 32 | flag, order);
  }
}

}  // namespace crosslane::kernel
