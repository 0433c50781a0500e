// See spares.h.
#include "gpu/spares.h"

#include "base/error.h"
#include "gpu/context.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace crosslane::gpu {
namespace {

// Sizes that calls of nearly the same length share: eight between a power of two and the next.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t least = std::size_t{64} << 10;
  const std::size_t grain = std::max(std::bit_floor(bytes) / 8, least);
  return std::max((bytes + grain - 1) / grain, std::size_t{1}) * grain;
}

}  // namespace

Buffer Spares::lend(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // Among equal ones that at the lowest address, however they came back.
    const auto rank = [&](const Buffer& buffer) {
      return std::tuple(buffer.size() < bytes, buffer.size(), buffer.address());
    };
    const auto best = std::ranges::min_element(kept_, {}, rank);
    if (best != kept_.end() && best->size() >= bytes) {
      Buffer lent = std::move(*best);
      kept_.erase(best);
      bytes_ -= lent.size();
      return lent;
    }
  }
  const ContextScope scope(driver_, context_);
  return allocate(rounded(bytes));
}

Buffer Spares::allocate(std::size_t bytes) {
  try {
    return {driver_, bytes};
  } catch (const base::Error& error) {
    if (error.error_class() != base::ErrorClass::no_memory) throw;
    std::vector<Buffer> freed;
    {
      const std::lock_guard lock(mutex_);
      freed.swap(kept_);
      bytes_ = 0;
    }
    if (freed.empty()) throw;
  }
  return {driver_, bytes};
}

void Spares::take_back(Buffer buffer) noexcept {
  if (buffer.size() > most_kept) return;
  std::vector<Buffer> freed;  // with the mutex free
  const std::lock_guard lock(mutex_);
  bytes_ += buffer.size();
  kept_.push_back(std::move(buffer));
  auto newest = kept_.begin();
  for (; bytes_ > most_kept; ++newest) bytes_ -= newest->size();
  freed.assign(std::move_iterator(kept_.begin()), std::move_iterator(newest));
  kept_.erase(kept_.begin(), newest);
}

}  // namespace crosslane::gpu
