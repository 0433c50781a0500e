// Reductions of middling arrays in two flights: each member combines a share of what all send it, and sends the result to whoever wants
// it, all in units that carry their flags (low_latency.h). It must not know collectives: callers name the shares.
#pragma once

#include "kernel/low_latency.h"

#include <cstdint>
#include <cstring>

namespace crosslane::kernel {

// A slot holds the parts that its sender has for its owner's share from unit 0 on, and the sender's results from unit `units` on.
// A unit belongs to the same thread of the same block on all members: what that thread reads of the own array it has sent or
// combined before it stores a result there.

struct LowLatencySharesParameters {
  Frame frame;
  std::uint64_t slot_bytes;
  std::uint64_t low_latency[most_members];  ///< each member's LL area, as mapped here
  std::uint64_t from;                       ///< own array
  std::uint64_t
      to;  ///< where others' results belong, as if all of the array were there; may be `from`; unused by who takes none
  std::uint64_t
      own_to;  ///< where the own share's result belongs; 0: it is not wanted here. In `from` only where that share or, of equal
               ///< ones, the first begins
  std::uint64_t share_begin[most_members];  ///< which bytes of the array each member combines: first, and
  std::uint64_t share_bytes[most_members];  ///< how many, whole elements; 0: none. Equal on all members
  std::uint64_t units;   ///< of the largest share; as many more fit into a slot where there are takers
  std::uint32_t takers;  ///< a bit for each member that wants all results; equal on all members
};

/// Combines in the order of ranks, from the lowest, so that all members get the same bits.
template <class T, class Op>
struct LowLatencyShares {
  using Parameters = LowLatencySharesParameters;
  using Wire = Packets;
  static_assert(sizeof(T) <= 8);

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    const detail::Slots<B, Wire> slots(block, p.frame, p.low_latency, p.slot_bytes);
    if (launch.lost()) return launch.finish();
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    const bool takes = (p.takers >> me & 1) != 0;
    const std::uint64_t own = p.share_bytes[me];
    std::uint32_t heard = 0;  // who sends me something; those hear as much from me, but maybe not the same
    std::uint32_t told = 0;
    CROSSLANE_ROLLED
    for (std::uint32_t m = 0; m < members; ++m) {
      const std::uint32_t bit = std::uint32_t{1} << m;
      if (own != 0 || (takes && p.share_bytes[m] != 0)) heard |= bit;
      if (p.share_bytes[m] != 0 || ((p.takers & bit) != 0 && own != 0)) told |= bit;
    }
    launch.send_tokens(~told);
    for_each_unit<Wire>(block, p.units, [&](std::uint64_t i) { send(block, p, slots, i); });
    if (slots.refreshes()) {
      CROSSLANE_ROLLED
      for (std::uint32_t m = 0; m < members; ++m) {
        if (m == me) continue;
        const std::uint64_t results = (p.takers >> m & 1) != 0 ? Wire::units_of(own) : 0;
        slots.fill(m, Wire::units_of(p.share_bytes[m]), p.units);
        slots.fill(m, p.units + results, p.slot_bytes / 16);
      }
    }
    for_each_unit<Wire>(block, Wire::units_of(own), [&](std::uint64_t i) { reduce(block, p, launch, slots, i); });
    if (takes) for_each_unit<Wire>(block, p.units, [&](std::uint64_t i) { collect(block, p, launch, slots, i); });
    launch.await_tokens(~heard);
    launch.finish(slots.counter(), slots.epoch() + 1);
  }

 private:
  static constexpr std::uint32_t words = Wire::words;
  static constexpr std::uint32_t ahead = 4 / words;  // units sent and polled at once: of more, registers spill
  struct alignas(8) Word {
    T element[8 / sizeof(T)];
  };

  // Unit i of all others' shares.
  template <class B>
  CROSSLANE_DEVICE static void send(const B& block, const Parameters& p, const detail::Slots<B, Wire>& slots,
                                    std::uint64_t i) {
    const std::uint32_t members = p.frame.members;
    const auto goes = [&](std::uint32_t k) {
      return k < members && i < Wire::units_of(p.share_bytes[p.frame.after(k)]);
    };
    CROSSLANE_ROLLED
    for (std::uint32_t first = 1; first < members; first += ahead) {
      std::uint64_t data[ahead * words];
      detail::load_words(block, data, [&](std::uint32_t k) {
        if (!goes(first + k / words)) return detail::Bytes8{0, 0};
        const std::uint32_t m = p.frame.after(first + k / words);
        return detail::place_in<Wire>(p.from + p.share_begin[m], p.share_bytes[m], i, k % words);
      });
      for (std::uint32_t k = 0; k < ahead; ++k)
        if (goes(first + k)) slots.send(p.frame.after(first + k), i, &data[k * words]);
    }
  }

  // Unit i of the own share, from all members.
  template <class B>
  CROSSLANE_DEVICE static void reduce(const B& block, const Parameters& p, const Launch<B>& launch,
                                      const detail::Slots<B, Wire>& slots, std::uint64_t i) {
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    std::uint64_t own[words], result[words] = {};
    detail::load_words(block, own, [&](std::uint32_t h) {
      return detail::place_in<Wire>(p.from + p.share_begin[me], p.share_bytes[me], i, h);
    });
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < members; first += ahead) {
      Word16 unit[ahead] = {};
      std::uint32_t wanted = 0;
      for (std::uint32_t k = 0; k < ahead; ++k) wanted |= (first + k < members && first + k != me ? 1U : 0U) << k;
      if (!slots.await(launch, wanted, unit, [&](std::uint32_t k) { return detail::Unit{first + k, i}; })) return;
      for (std::uint32_t k = 0; k < ahead; ++k) {
        const std::uint32_t m = first + k;
        if (m >= members) break;
        for (std::uint32_t h = 0; h < words; ++h) {
          const std::uint64_t data = m == me ? own[h] : Wire::word(unit[k], h);
          result[h] = m == 0 ? data : combine(result[h], data);
        }
      }
    }
    CROSSLANE_ROLLED
    for (std::uint32_t k = 1; k < members; ++k) {
      const std::uint32_t m = p.frame.after(k);
      if ((p.takers >> m & 1) != 0) slots.send(m, p.units + i, result);
    }
    if (p.own_to != 0) detail::store_unit<Wire>(block, p.own_to, p.share_bytes[me], i, result);
  }

  // Unit i of all others' results.
  template <class B>
  CROSSLANE_DEVICE static void collect(const B& block, const Parameters& p, const Launch<B>& launch,
                                       const detail::Slots<B, Wire>& slots, std::uint64_t i) {
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    const auto comes = [&](std::uint32_t m) { return m < members && m != me && i < Wire::units_of(p.share_bytes[m]); };
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < members; first += ahead) {
      Word16 unit[ahead] = {};
      std::uint32_t wanted = 0;
      for (std::uint32_t k = 0; k < ahead; ++k) wanted |= (comes(first + k) ? 1U : 0U) << k;
      const auto from = [&](std::uint32_t k) { return detail::Unit{first + k, p.units + i}; };
      if (!slots.await(launch, wanted, unit, from)) return;
      for (std::uint32_t k = 0; k < ahead; ++k) {
        if ((wanted >> k & 1) == 0) continue;
        std::uint64_t data[words];
        for (std::uint32_t h = 0; h < words; ++h) data[h] = Wire::word(unit[k], h);
        detail::store_unit<Wire>(block, p.to + p.share_begin[first + k], p.share_bytes[first + k], i, data);
      }
    }
  }

  CROSSLANE_DEVICE static std::uint64_t combine(std::uint64_t result, std::uint64_t data) {
    Word left, right;
    std::memcpy(&left, &result, 8);
    std::memcpy(&right, &data, 8);
    for (unsigned k = 0; k < 8 / sizeof(T); ++k) left.element[k] = Op::apply(left.element[k], right.element[k]);
    std::memcpy(&result, &left, 8);
    return result;
  }
};

}  // namespace crosslane::kernel
