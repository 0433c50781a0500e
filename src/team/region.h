// What a team keeps in each member's window, and where: flags, low-latency slots, staging. A function of the team's size alone, so
// that all members agree without a word. It must not know who maps what.
#pragma once

#include "kernel/team.h"
#include "kernel/wire.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace crosslane::team {

/// Of a member's window for large reductions, which all its teams use in turn; made when the first one is wanted.
inline constexpr std::size_t large_window_bytes = std::size_t{96} << 20;
/// What a team of so many uses of it.
[[nodiscard]] constexpr std::size_t large_window_bytes_for(int members) noexcept {
  constexpr std::size_t a_member = std::size_t{12} << 20;
  return std::min(large_window_bytes, static_cast<std::size_t>(members) * a_member);
}

struct RegionLayout {
  /// Of data with flags: two parities, one slot a member.
  struct Slots {
    std::size_t offset, slot_bytes;
  };
  Slots packets, lines;    ///< By wire (kernel/wire.h).
  std::size_t staging;     ///< Offset of the staging memory: two parities, an inbound and an outbound part each.
  std::size_t part_bytes;  ///< Of one part.
  std::size_t bytes;       ///< Of the region.

  /// Bytes from a place in staging memory of even parity to the same of odd parity.
  [[nodiscard]] std::size_t parity_bytes() const noexcept { return 2 * part_bytes; }
  [[nodiscard]] std::size_t inbound() const noexcept { return staging; }
  [[nodiscard]] std::size_t outbound() const noexcept { return staging + part_bytes; }
  template <class Wire>
  [[nodiscard]] const Slots& slots() const noexcept {
    return std::is_same_v<Wire, kernel::Lines> ? lines : packets;
  }
  /// Of each of so many slots (0 is 1) that share the staging memory of a parity, as relays cut it: whole elements. Larger ones gain
  /// nothing but fewer flags, smaller ones keep the levels of a hierarchy busy at once.
  [[nodiscard]] std::size_t relay_bytes(std::size_t slots) const noexcept {
    constexpr std::size_t most = std::size_t{1} << 20;
    constexpr std::size_t granule = 256;
    return std::min(parity_bytes() / std::max<std::size_t>(slots, 1) / granule * granule, most);
  }
};

inline constexpr std::size_t default_part_bytes = std::size_t{2} << 20;

/// `part_bytes` is rounded up to pages; small ones save memory, and have large messages go in more parts.
[[nodiscard]] constexpr RegionLayout region_layout(int members, std::size_t part_bytes = default_part_bytes) noexcept {
  constexpr std::size_t page = std::size_t{4} << 10;
  constexpr auto paged = [](std::size_t bytes) { return (bytes + page - 1) / page * page; };
  const auto n = static_cast<std::size_t>(members);
  RegionLayout layout{};
  layout.packets.offset = paged(sizeof(kernel::Control));
  // 256 KiB of payload for up to four members, 64 KiB for eight, less for more: what each sends to all is to stay as much, and what they
  // send together grows with their square.
  const std::size_t few = std::min<std::size_t>(std::size_t{512} << 10, (std::size_t{8} << 20) / (n * n));
  const std::size_t many = std::min<std::size_t>(std::size_t{128} << 10, (std::size_t{1} << 20) / n);
  layout.packets.slot_bytes = paged(std::max(few, many));
  // Of middling messages: what is longer goes as fast without flags. 512 KiB for up to four members, half as much for eight.
  layout.lines.offset = layout.packets.offset + 2 * n * layout.packets.slot_bytes;
  layout.lines.slot_bytes = paged(std::min<std::size_t>(std::size_t{548} << 10, (std::size_t{2192} << 10) / n));
  layout.staging = layout.lines.offset + 2 * n * layout.lines.slot_bytes;
  layout.part_bytes = paged(part_bytes);
  layout.bytes = layout.staging + 4 * layout.part_bytes;
  return layout;
}

}  // namespace crosslane::team
