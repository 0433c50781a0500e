// See epoch_words.h.
#include "share/epoch_words.h"

#include <new>

namespace crosslane::share {

std::size_t EpochWords::bytes_for(int ranks) noexcept {
  return line_bytes + sizeof(Rank) + static_cast<std::size_t>(ranks) * sizeof(Pair);
}

// Memory is shared by whole pages, so that all ranks find the same line of a part.
EpochWords::EpochWords(const std::vector<std::byte*>& parts, int me) : me_(me) {
  for (std::byte* const part : parts) {
    const auto past = reinterpret_cast<std::uintptr_t>(part) % line_bytes;
    std::byte* const first = part + (line_bytes - past) % line_bytes;
    if (static_cast<int>(parts_.size()) == me) {
      ::new (first) Rank{};
      for (std::size_t origin = 0; origin < parts.size(); ++origin)
        ::new (first + sizeof(Rank) + origin * sizeof(Pair)) Pair{};
    }
    parts_.push_back(
        {std::launder(reinterpret_cast<Rank*>(first)), std::launder(reinterpret_cast<Pair*>(first + sizeof(Rank)))});
  }
}

bool EpochWords::try_share(int target) const noexcept {
  auto& lock = of(target).lock;
  std::uint64_t held = lock.load(std::memory_order_relaxed);
  while (held != alone)
    if (lock.compare_exchange_weak(held, held + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
  return false;
}

bool EpochWords::try_exclude(int target) const noexcept {
  std::uint64_t free = 0;
  return of(target).lock.compare_exchange_strong(free, alone, std::memory_order_acquire, std::memory_order_relaxed);
}

bool EpochWords::try_guard(int target) const noexcept {
  std::uint64_t free = 0;
  return of(target).guard.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
}

std::uint64_t EpochWords::come_to_fence() const noexcept {
  auto& fences = of(me_).fences;
  const std::uint64_t number = fences.load(std::memory_order_relaxed) + 1;
  fences.store(number, std::memory_order_release);
  return number;
}

}  // namespace crosslane::share
