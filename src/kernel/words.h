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
  /// Of how many numbers of 4 bytes they are made; 0: of none, or of what is no such number. Programs often have an odd number of them.
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t halves() const {
    if (address % 4 != 0) return 0;
    return bytes >= 8 ? 2 : bytes == 4 ? 1 : 0;
  }
};

/// data[k] becomes what from[k] says where those are bytes that are no whole word. Halves of words are all in flight at once.
template <class B>
CROSSLANE_DEVICE_CALL void load_odd(B block, std::uint64_t* data, const Bytes8* from, std::uint32_t n) {
  constexpr std::uint32_t ahead = 4;
  CROSSLANE_ROLLED
  for (std::uint32_t first = 0; first < n; first += ahead) {
    std::uint32_t low[ahead], high[ahead], odd = 0;
    for (std::uint32_t k = 0; k < ahead; ++k) {
      const Bytes8 place = first + k < n ? from[first + k] : Bytes8{0, 0};
      const std::uint32_t halves = place.halves();
      const auto* const numbers = reinterpret_cast<const std::uint32_t*>(place.address);
      low[k] = halves != 0 ? block.load(numbers) : 0;
      high[k] = halves == 2 ? block.load(numbers + 1) : 0;
      odd |= (place.bytes != 0 && halves == 0 ? 1U : 0U) << k;
    }
    for (std::uint32_t k = 0; k < ahead; ++k)
      if (first + k < n) data[first + k] = low[k] | std::uint64_t{high[k]} << 32;
    CROSSLANE_ROLLED
    for (std::uint32_t k = 0; odd >> k != 0; ++k) {
      if ((odd >> k & 1) == 0) continue;
      const Bytes8 place = from[first + k];
      std::uint64_t word = 0;
      for (unsigned byte = 0; byte < 8 && byte < place.bytes; ++byte)
        word |= std::uint64_t{block.load(reinterpret_cast<const std::uint8_t*>(place.address) + byte)} << 8 * byte;
      data[first + k] = word;
    }
  }
}
template <class B>
CROSSLANE_DEVICE_CALL void store_odd(B block, Bytes8 to, std::uint64_t data) {
  if (const std::uint32_t halves = to.halves(); halves != 0) {
    auto* const numbers = reinterpret_cast<std::uint32_t*>(to.address);
    block.store(numbers, static_cast<std::uint32_t>(data));
    if (halves == 2) block.store(numbers + 1, static_cast<std::uint32_t>(data >> 32));
    return;
  }
  for (unsigned k = 0; k < 8 && k < to.bytes; ++k)
    block.store(reinterpret_cast<std::uint8_t*>(to.address) + k, static_cast<std::uint8_t>(data >> 8 * k));
}

/// data[k] becomes what place(k) says, for each k. Whole words are loaded without a branch in between: so all loads are in flight at
/// once, where a branch, and what else a load might be, has the next one wait for it.
template <class B, std::uint32_t n, class Place>
CROSSLANE_DEVICE void load_words(const B& block, std::uint64_t (&data)[n], Place place) {
  bool odd = false;
  for (std::uint32_t k = 0; k < n; ++k) {
    const Bytes8 from = place(k);
    data[k] = from.whole() ? block.load(reinterpret_cast<const std::uint64_t*>(from.address)) : 0;
    odd = odd || (from.bytes != 0 && !from.whole());
  }
  if (!odd) return;
  if constexpr (n == 1) {
    // In line: many a program combines one number.
    if (const Bytes8 from = place(0); from.halves() != 0) {
      const auto* const numbers = reinterpret_cast<const std::uint32_t*>(from.address);
      const std::uint32_t low = block.load(numbers), high = from.halves() == 2 ? block.load(numbers + 1) : 0;
      data[0] = low | std::uint64_t{high} << 32;
      return;
    }
  }
  // In memory, which the words that are whole need not be in.
  std::uint64_t others[n];
  Bytes8 from[n];
  for (std::uint32_t k = 0; k < n; ++k) {
    from[k] = place(k);
    if (from[k].whole()) from[k].bytes = 0;
  }
  load_odd(block, others, from, n);
  for (std::uint32_t k = 0; k < n; ++k) data[k] |= others[k];
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
