// How data and the flags that vouch for it travel together, in units of 16 bytes that a thread writes and reads at once.
// A wire says which words of 8 bytes of a message are in a unit; it must not know who sends them to whom.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel {

/// A unit is a packet of its own: 4 bytes of data, the flag, 4 of data, the flag (NCCL's LL). Each half is written and read at once, so
/// who sees the flag has the data, and each half may come by itself.
struct Packets {
  static constexpr std::uint32_t words = 1;  ///< of data in a unit, at most
  static constexpr std::uint32_t group = 1;  ///< units that come together
  CROSSLANE_DEVICE static constexpr std::uint64_t payload(std::uint64_t slot_bytes) { return slot_bytes / 2; }
  CROSSLANE_DEVICE static constexpr std::uint64_t units_of(std::uint64_t bytes) { return (bytes + 7) / 8; }
  CROSSLANE_DEVICE static std::uint64_t first_word(std::uint64_t unit) { return unit; }
  CROSSLANE_DEVICE static std::uint32_t words_in(std::uint64_t /*unit*/) { return 1; }

  // In 32 bits, never 0, which is what new memory holds: after 2^32 epochs one comes again.
  using Flag = std::uint32_t;
  static constexpr bool flags_recur = true;
  CROSSLANE_DEVICE static Flag flag_of(std::uint64_t epoch) {
    const auto flag = static_cast<Flag>(epoch + 1);
    return flag == 0 ? 1 : flag;  // as the next epoch's, which is of the other parity
  }

  template <class B>
  CROSSLANE_DEVICE static void store(const B& block, Word16* to, std::uint64_t /*unit*/, const std::uint64_t* data,
                                     Flag flag) {
    const std::uint64_t high = std::uint64_t{flag} << 32;
    block.store_packet(to, {(data[0] & 0xffffffffU) | high, data[0] >> 32 | high});
  }
  template <class B>
  using Seen = Word16;
  template <class B>
  CROSSLANE_DEVICE static Word16 look(const B& block, const Word16* at) {
    return block.load_packet(at);
  }
  template <class B>
  CROSSLANE_DEVICE static bool complete(const B& /*block*/, const Word16& seen, Flag flag) {
    return seen.low >> 32 == flag && seen.high >> 32 == flag;
  }
  CROSSLANE_DEVICE static Word16 unit(const Word16& seen) { return seen; }
  CROSSLANE_DEVICE static std::uint64_t word(const Word16& unit, std::uint32_t /*index*/) {
    return (unit.low & 0xffffffffU) | unit.high << 32;
  }
};

/// Eight units make a line of 128 bytes, written and read by eight neighbouring threads at once: fifteen words of data and the flag (NCCL's
/// LL128). That a line's bytes come together is what NVLink does, and NCCL relies on; no manual promises it. Its eight threads
/// do the same all the way: what one of them waits for, all do.
struct Lines {
  static constexpr std::uint32_t words = 2;
  static constexpr std::uint32_t group = 8;
  CROSSLANE_DEVICE static constexpr std::uint64_t payload(std::uint64_t slot_bytes) { return slot_bytes / 128 * 120; }
  CROSSLANE_DEVICE static constexpr std::uint64_t units_of(std::uint64_t bytes) { return (bytes + 119) / 120 * 8; }
  CROSSLANE_DEVICE static std::uint64_t first_word(std::uint64_t unit) { return unit / 8 * 15 + unit % 8 * 2; }
  CROSSLANE_DEVICE static std::uint32_t words_in(std::uint64_t unit) { return unit % 8 == 7 ? 1 : 2; }

  // In 64 bits: none ever comes again.
  using Flag = std::uint64_t;
  static constexpr bool flags_recur = false;
  CROSSLANE_DEVICE static Flag flag_of(std::uint64_t epoch) { return epoch + 1; }

  template <class B>
  CROSSLANE_DEVICE static void store(const B& block, Word16* to, std::uint64_t unit, const std::uint64_t* data,
                                     Flag flag) {
    block.store_line(to, {data[0], unit % 8 == 7 ? flag : data[1]});
  }
  template <class B>
  using Seen = typename B::LinePart;
  template <class B>
  CROSSLANE_DEVICE static typename B::LinePart look(const B& block, const Word16* at) {
    return block.load_line(at);
  }
  template <class B>
  CROSSLANE_DEVICE static bool complete(const B& block, const typename B::LinePart& seen, Flag flag) {
    return block.line_flag(seen) == flag;
  }
  template <class Part>
  CROSSLANE_DEVICE static Word16 unit(const Part& seen) {
    return seen.word;
  }
  CROSSLANE_DEVICE static std::uint64_t word(const Word16& unit, std::uint32_t index) {
    return index == 0 ? unit.low : unit.high;
  }
};

/// f(unit) for each of them, shared by all threads of the grid; those of a group go to neighbouring threads.
template <class Wire, class B, class F>
CROSSLANE_DEVICE void for_each_unit(const B& block, std::uint64_t units, F f) {
  if constexpr (Wire::group == 1) {
    block.for_each_in_grid(units, f);
  } else {
    block.for_each_group(units / Wire::group, Wire::group,
                         [&](std::uint64_t i, std::uint64_t lane, std::uint64_t lanes) {
                           for (std::uint64_t unit = lane; unit < Wire::group; unit += lanes) f(i * Wire::group + unit);
                         });
  }
}

}  // namespace crosslane::kernel
