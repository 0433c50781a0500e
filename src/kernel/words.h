// Buffers at any address as words of 8 bytes, the last of them maybe shorter. It must not know what the words are for.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel::detail {

/// Up to 8 bytes, which lie somewhere; 0: none are wanted.
struct Bytes8 {
  std::uint64_t address, bytes;
  /// A word, and as such in memory.
  [[nodiscard]] CROSSLANE_DEVICE bool whole() const { return bytes >= 8 && address % 8 == 0; }
  /// A word or its half, in numbers of 4 bytes: a single number, as programs often have it, is no word.
  [[nodiscard]] CROSSLANE_DEVICE bool in_halves() const { return (bytes >= 8 || bytes == 4) && address % 4 == 0; }
};
/// Those that are no whole word.
template <class B>
CROSSLANE_DEVICE_CALL std::uint64_t load_odd(B block, Bytes8 from) {
  if (from.in_halves()) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(from.address);
    const std::uint64_t low = block.load(words);
    return from.bytes == 4 ? low : low | std::uint64_t{block.load(words + 1)} << 32;
  }
  std::uint64_t data = 0;
  for (unsigned k = 0; k < 8 && k < from.bytes; ++k)
    data |= std::uint64_t{block.load(reinterpret_cast<const std::uint8_t*>(from.address) + k)} << 8 * k;
  return data;
}
template <class B>
CROSSLANE_DEVICE_CALL void store_odd(B block, Bytes8 to, std::uint64_t data) {
  if (to.in_halves()) {
    auto* const words = reinterpret_cast<std::uint32_t*>(to.address);
    block.store(words, static_cast<std::uint32_t>(data));
    if (to.bytes >= 8) block.store(words + 1, static_cast<std::uint32_t>(data >> 32));
    return;
  }
  for (unsigned k = 0; k < 8 && k < to.bytes; ++k)
    block.store(reinterpret_cast<std::uint8_t*>(to.address) + k, static_cast<std::uint8_t>(data >> 8 * k));
}

/// data[k] becomes what place(k) says, for each k. Whole words are loaded without a branch in between: so all loads are in flight at
/// once, where a branch, and what else a load might be, has the next one wait for it.
template <class B, std::uint32_t n, class Place>
CROSSLANE_DEVICE void load_words(const B& block, std::uint64_t (&data)[n], Place place) {
  std::uint32_t odd = 0;
  for (std::uint32_t k = 0; k < n; ++k) {
    const Bytes8 from = place(k);
    data[k] = from.whole() ? block.load(reinterpret_cast<const std::uint64_t*>(from.address)) : 0;
    odd |= (from.bytes != 0 && !from.whole() ? 1U : 0U) << k;
  }
  if (odd == 0) return;
  CROSSLANE_ROLLED
  for (std::uint32_t k = 0; k < n; ++k) {
    if ((odd >> k & 1) == 0) continue;
    const std::uint64_t word = load_odd(block, place(k));
    // Not data[k]: registers have no index.
    for (std::uint32_t i = 0; i < n; ++i) data[i] = i == k ? word : data[i];
  }
}
template <class B>
CROSSLANE_DEVICE void store_word(const B& block, Bytes8 to, std::uint64_t data) {
  if (to.whole()) {
    block.store(reinterpret_cast<std::uint64_t*>(to.address), data);
  } else {
    store_odd(block, to, data);
  }
}

}  // namespace crosslane::kernel::detail
