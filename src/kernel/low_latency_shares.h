// Reductions of middling arrays in two flights: each member combines a share of what all send it and sends the result to whoever
// wants it, all in words that carry their flags (low_latency.h). It must not know collectives: callers name the shares.
#pragma once

#include "kernel/low_latency.h"

#include <cstdint>
#include <cstring>

namespace crosslane::kernel {

// A slot holds the parts that its sender has for its owner's share from packet 0 on, and the sender's results from packet `packets` on.
// A packet belongs to the same thread of the same block on all members: what that thread reads of the own array it has sent or
// combined before it stores a result there.

struct LowLatencySharesParameters {
  Frame frame;
  std::uint64_t slot_bytes;
  std::uint64_t low_latency[most_members];  ///< each member's LL area, as mapped here, 16-byte aligned
  std::uint64_t from, to;  ///< own array, and the result's, which may be the same; `to` unused by who does not want it
  std::uint64_t share_begin[most_members];  ///< which bytes of the array each member combines: first, and
  std::uint64_t share_bytes[most_members];  ///< how many, whole elements; 0: none. Equal on all members
  std::uint64_t packets;  ///< as many as the largest share has words of 8 bytes; twice as many fit into a slot
  std::uint32_t takers;   ///< a bit for each member that wants the result; equal on all members
};

/// Combines in the order of ranks, from the lowest, so that all members get the same bits.
template <class T, class Op>
struct LowLatencyShares {
  using Parameters = LowLatencySharesParameters;
  static_assert(sizeof(T) <= 8);

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    const detail::Slots<B> slots(block, p.frame, p.low_latency, p.slot_bytes);
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
    block.for_each_in_grid(p.packets, [&](std::uint64_t i) { send(block, p, slots, i); });
    if (slots.refreshes()) {
      CROSSLANE_ROLLED
      for (std::uint32_t m = 0; m < members; ++m) {
        if (m == me) continue;
        const std::uint64_t results = (p.takers >> m & 1) != 0 ? (own + 7) / 8 : 0;
        slots.fill(m, (p.share_bytes[m] + 7) / 8, p.packets);
        slots.fill(m, p.packets + results, p.slot_bytes / 16);
      }
    }
    block.for_each_in_grid((own + 7) / 8, [&](std::uint64_t i) { reduce(block, p, launch, slots, i); });
    if (takes) block.for_each_in_grid(p.packets, [&](std::uint64_t i) { collect(block, p, launch, slots, i); });
    launch.await_tokens(~heard);
    launch.finish_low_latency(slots.epoch());
  }

 private:
  static constexpr std::uint32_t ahead = 8;  // loads and polls in flight
  struct alignas(8) Word {
    T element[8 / sizeof(T)];
  };

  // Word i of all others' shares.
  template <class B>
  CROSSLANE_DEVICE static void send(const B& block, const Parameters& p, const detail::Slots<B>& slots,
                                    std::uint64_t i) {
    const std::uint32_t members = p.frame.members;
    const auto goes = [&](std::uint32_t k) { return k < members && 8 * i < p.share_bytes[p.frame.after(k)]; };
    CROSSLANE_ROLLED
    for (std::uint32_t first = 1; first < members; first += ahead) {
      std::uint64_t data[ahead];
      detail::load_words(block, data, [&](std::uint32_t k) {
        if (!goes(first + k)) return detail::Bytes8{0, 0};
        const std::uint32_t m = p.frame.after(first + k);
        return detail::Bytes8{p.from + p.share_begin[m] + 8 * i, p.share_bytes[m] - 8 * i};
      });
      for (std::uint32_t k = 0; k < ahead; ++k)
        if (goes(first + k)) slots.send(p.frame.after(first + k), i, data[k]);
    }
  }

  // Word i of the own share, from all members.
  template <class B>
  CROSSLANE_DEVICE static void reduce(const B& block, const Parameters& p, const Launch<B>& launch,
                                      const detail::Slots<B>& slots, std::uint64_t i) {
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    const std::uint64_t at = p.share_begin[me] + 8 * i, bytes = p.share_bytes[me] - 8 * i;
    const std::uint64_t own = detail::load_word(block, {p.from + at, bytes});
    std::uint64_t result = 0;
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < members; first += ahead) {
      Word16 packet[ahead] = {};
      std::uint32_t wanted = 0;
      for (std::uint32_t k = 0; k < ahead; ++k) wanted |= (first + k < members && first + k != me ? 1U : 0U) << k;
      if (!slots.await(launch, wanted, packet, [&](std::uint32_t k) { return detail::Packet{first + k, i}; })) return;
      for (std::uint32_t k = 0; k < ahead; ++k) {
        const std::uint32_t m = first + k;
        if (m >= members) break;
        const std::uint64_t data = m == me ? own : detail::from_packet(packet[k]);
        result = m == 0 ? data : combine(result, data);
      }
    }
    std::uint32_t m = me;
    CROSSLANE_ROLLED
    for (std::uint32_t k = 1; k < members; ++k) {
      m = m + 1 == members ? 0 : m + 1;
      if ((p.takers >> m & 1) != 0) slots.send(m, p.packets + i, result);
    }
    if ((p.takers >> me & 1) != 0) detail::store_word(block, {p.to + at, bytes}, result);
  }

  // Word i of all others' results.
  template <class B>
  CROSSLANE_DEVICE static void collect(const B& block, const Parameters& p, const Launch<B>& launch,
                                       const detail::Slots<B>& slots, std::uint64_t i) {
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    const auto comes = [&](std::uint32_t m) { return m < members && m != me && 8 * i < p.share_bytes[m]; };
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < members; first += ahead) {
      Word16 packet[ahead] = {};
      std::uint32_t wanted = 0;
      for (std::uint32_t k = 0; k < ahead; ++k) wanted |= (comes(first + k) ? 1U : 0U) << k;
      const auto from = [&](std::uint32_t k) { return detail::Packet{first + k, p.packets + i}; };
      if (!slots.await(launch, wanted, packet, from)) return;
      for (std::uint32_t k = 0; k < ahead; ++k) {
        const std::uint32_t m = first + k;
        if ((wanted >> k & 1) == 0) continue;
        detail::store_word(block, {p.to + p.share_begin[m] + 8 * i, p.share_bytes[m] - 8 * i},
                           detail::from_packet(packet[k]));
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
