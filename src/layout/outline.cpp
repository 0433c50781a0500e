// See outline.h.
#include "layout/outline.h"

#include "gpu/region.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace crosslane::layout {

Outline::Outline(const Layout& layout) {
  std::map<std::int64_t, Span> found;  // by distance in regions
  auto last = found.end();
  const auto add = [&](std::int64_t byte) {
    constexpr auto each = static_cast<std::int64_t>(gpu::region_bytes);
    const std::int64_t nth = byte >= 0 ? byte / each : ~(~byte / each);
    if (last == found.end() || last->first != nth) last = found.try_emplace(nth, Span{byte, byte + 1}).first;
    Span& stretch = last->second;
    stretch = {std::min(stretch.begin, byte), std::max(stretch.end, byte + 1)};
  };
  layout.for_each_run(1, 0, layout.size(), [&](std::int64_t offset, std::size_t length) {
    add(offset);
    add(offset + static_cast<std::int64_t>(length) - 1);
  });
  stretches_.reserve(found.size());
  for (const auto& [nth, stretch] : found) stretches_.push_back(stretch);
}

bool is_scattered(const Layout& layout) noexcept {
  return static_cast<std::size_t>(layout.true_extent()) >= gpu::region_bytes && !layout.as_strided(1).has_value();
}

}  // namespace crosslane::layout
