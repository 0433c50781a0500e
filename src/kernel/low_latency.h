// Small and middling messages in one flight: what is written into a peer's memory carries its flags with it (wire.h), so that there is no
// barrier. It must not know collectives: callers name who sends what to whom.
#pragma once

#include "kernel/move.h"
#include "kernel/operation.h"
#include "kernel/team.h"
#include "kernel/wire.h"
#include "kernel/words.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace crosslane::kernel {

// The LL area of a member: 2 * members slots of slot_bytes each; a slot holds Wire::payload(slot_bytes) bytes of data. slot_bytes
// is a multiple of 128, as is the area's address, and the same at every launch of a team.

// How a unit of 16 bytes carries data and flag is the wire's (wire.h). The flag is the epoch: how many launches used the wire's areas
// before this one, plus 1. Epochs of the same parity share a slot:
//
//   flag found           meaning for a reader in epoch E
//   that of E            p's data of this launch
//   anything else        of an earlier epoch of this parity, or never written: not there yet. Never later: p writes
//                        epoch E + 2 only when it knows that all are through with E (team.h)
//
// Where flags recur, a place that no message reached for 2^32 epochs would hold one that looks right again: so in two epochs (one a
// parity) of every 2^30 each sender writes its whole slots. Each wire has areas of its own: data of one would look like flags of another.

/// For LowLatencyMove: what goes to each member and comes from it, of any lengths. send[p].bytes here is receive[me].bytes there.
struct LowLatencyMoveParameters {
  Frame frame;
  std::uint64_t slot_bytes;
  std::uint64_t low_latency[most_members];  ///< each member's LL area, as mapped here
  Move send[most_members];                  ///< from, bytes to member p (`to` is unused); 0 bytes: only a token
  Move receive
      [most_members];  ///< to, bytes from member p; 0 bytes: its token only. Own entry: a copy from send[me].from

  /// A bit for each member to which some bytes go, from which some come; where the first is and belongs, and how many they are.
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t sends() const { return in(send); }
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t receives() const { return in(receive); }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t source(std::uint32_t p) const { return send[p].from; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t sent_bytes(std::uint32_t p) const { return send[p].bytes; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t destination(std::uint32_t p) const { return receive[p].to; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t received_bytes(std::uint32_t p) const { return receive[p].bytes; }

 private:
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t in(const Move* moves) const {
    std::uint32_t members = 0;
    for (std::uint32_t p = 0; p < frame.members; ++p) members |= (moves[p].bytes != 0 ? 1U : 0U) << p;
    return members;
  }
};

/// The same where all are of one length: all-gather, broadcast, scatter, gather, all-to-all. Less than a third as long, for the driver copies parameters
/// several times, which is a good part of what a launch takes a host; and a kernel that stays reads them across the bus.
struct LowLatencyEvenParameters {
  Frame frame;
  std::uint64_t slot_bytes;
  std::uint64_t low_latency[most_members];
  std::uint64_t from, from_stride;      ///< for member p from from + p * from_stride on
  std::uint64_t to, to_stride;          ///< what comes from member p belongs to to + p * to_stride
  std::uint64_t bytes;                  ///< not 0 where a bit is set
  std::uint32_t send_to, receive_from;  ///< a bit a member; the own one in both: a copy

  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t sends() const { return send_to; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint32_t receives() const { return receive_from; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t source(std::uint32_t p) const { return from + p * from_stride; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t sent_bytes(std::uint32_t /*p*/) const { return bytes; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t destination(std::uint32_t p) const { return to + p * to_stride; }
  [[nodiscard]] CROSSLANE_DEVICE std::uint64_t received_bytes(std::uint32_t /*p*/) const { return bytes; }
};

/// For LowLatencyCombine: all-reduce, reduce, reduce-scatter-block, scan, exscan. p is in my send_to where I am in its
/// receive_from. `to` may be from + p * from_stride for some p, but not overlap the source otherwise.
struct LowLatencyCombineParameters {
  Frame frame;
  std::uint64_t slot_bytes;
  std::uint64_t low_latency[most_members];
  std::uint64_t from, from_stride;      ///< data for member p at from + p * from_stride
  std::uint32_t send_to, receive_from;  ///< a bit a member; own bit in receive_from: own data takes part
  std::uint64_t to;                     ///< the result; unused when receive_from is 0
  std::uint64_t count;                  ///< elements for each receiver
};

namespace detail {

/// Who sends it, and which one of those it is.
struct Unit {
  std::uint32_t from;
  std::uint64_t number;
};

/// The slots of one launch.
template <class B, class Wire>
class Slots {
 public:
  CROSSLANE_DEVICE Slots(const B& block, const Frame& frame, const std::uint64_t* low_latency, std::uint64_t slot_bytes)
      : block_(block), frame_(frame), low_latency_(low_latency), slot_bytes_(slot_bytes) {
    epoch_ = block.load(counter());
    flag_ = Wire::flag_of(epoch_);
  }

  /// Where the epoch is counted: of each wire by itself, for its areas' sake.
  CROSSLANE_DEVICE std::uint64_t* counter() const {
    Control& own = *frame_.control[frame_.me];
    return std::is_same_v<Wire, Lines> ? &own.line_launches : &own.low_latency_launches;
  }
  CROSSLANE_DEVICE std::uint64_t epoch() const { return epoch_; }
  CROSSLANE_DEVICE void send(std::uint32_t to, std::uint64_t unit, const std::uint64_t* data) const {
    Wire::store(block_, slot(to, frame_.me) + unit, unit, data, flag_);
  }
  /// Those units whose bit k is set in `wanted`, each the one that place(k) says, once the last of them has come. They are all asked
  /// for at once, and those that are missing again: one after the other each would cost a way to memory. False: see Launch::await.
  template <std::uint32_t n, class Place>
  CROSSLANE_DEVICE bool await(const Launch<B>& launch, std::uint32_t wanted, Word16 (&unit)[n], Place place) const {
    typename Wire::template Seen<B> seen[n] = {};
    std::uint32_t missing = wanted;
    const auto look = [&] {
      for (std::uint32_t k = 0; k < n; ++k)
        if ((missing >> k & 1) != 0) seen[k] = peek(place(k));
      std::uint32_t left = 0;
      for (std::uint32_t k = 0; k < n; ++k) left |= (Wire::complete(block_, seen[k], flag_) ? 0U : 1U) << k;
      missing &= left;
      return missing == 0;
    };
    const auto whose = [&] {
      std::uint32_t k = 0;
      while ((missing >> k & 1) == 0) ++k;
      return std::uint64_t{place(k).from};
    };
    if (!launch.template await<Wire::group>(whose, look)) return false;
    for (std::uint32_t k = 0; k < n; ++k) unit[k] = Wire::unit(seen[k]);
    return true;
  }

  /// In few epochs: whether all that carries no data is to be filled.
  CROSSLANE_DEVICE bool refreshes() const {
    constexpr std::uint64_t period = std::uint64_t{1} << 30;
    return Wire::flags_recur && epoch_ % period < 2 && epoch_ >= period;
  }
  /// By all threads: units [begin, end) of the slot at that member.
  CROSSLANE_DEVICE void fill(std::uint32_t to, std::uint64_t begin, std::uint64_t end) const {
    const std::uint64_t nothing[Wire::words] = {};
    block_.for_each_in_grid(end - begin, [&](std::uint64_t i) { send(to, begin + i, nothing); });
  }
  /// In those epochs, by all threads: fills what is behind the units that go to each member.
  template <class Units>
  CROSSLANE_DEVICE void refresh(Units units_to) const {
    if (!refreshes()) return;
    for (std::uint32_t m = 0; m < frame_.members; ++m)
      if (m != frame_.me) fill(m, units_to(m), slot_bytes_ / 16);
  }

 private:
  CROSSLANE_DEVICE auto peek(const Unit& unit) const {
    return Wire::look(block_, slot(frame_.me, unit.from) + unit.number);
  }
  CROSSLANE_DEVICE Word16* slot(std::uint32_t owner, std::uint32_t sender) const {
    return reinterpret_cast<Word16*>(low_latency_[owner] + ((epoch_ & 1) * frame_.members + sender) * slot_bytes_);
  }

  const B& block_;
  const Frame& frame_;
  const std::uint64_t* low_latency_;
  std::uint64_t slot_bytes_, epoch_;
  typename Wire::Flag flag_;
};

/// Where word `index` of a unit of a message lies that begins at `begin` and has so many bytes.
template <class Wire>
CROSSLANE_DEVICE Bytes8 place_in(std::uint64_t begin, std::uint64_t bytes, std::uint64_t unit, std::uint32_t index) {
  const std::uint64_t at = 8 * (Wire::first_word(unit) + index);
  return {begin + at, index < Wire::words_in(unit) && at < bytes ? bytes - at : 0};
}
/// Stores what a unit of such a message carries.
template <class Wire, class B>
CROSSLANE_DEVICE void store_unit(const B& block, std::uint64_t begin, std::uint64_t bytes, std::uint64_t unit,
                                 const std::uint64_t* data) {
  for (std::uint32_t h = 0; h < Wire::words; ++h) {
    const Bytes8 to = place_in<Wire>(begin, bytes, unit, h);
    if (Wire::words == 1 || to.bytes != 0) store_word(block, to, data[h]);
  }
}

/// This block's units of the messages of those members (a bit each, not the own one), shared by its threads: as many for each.
/// f(member, first unit, step, end) for this thread's share, of whole groups. Which block a unit belongs to follows from the number of
/// units alone, of bytes(member): so block b waits for units of the peers' blocks b, and for no other.
template <class Wire, class B, class Length, class F>
CROSSLANE_DEVICE void for_each_message(const B& block, const Frame& frame, std::uint32_t whose, Length bytes, F f) {
  if (whose == 0) return;
  const std::uint32_t me = frame.me, members = frame.members;
  std::uint32_t messages = 0;
  for (std::uint32_t rest = whose; rest != 0; rest &= rest - 1) ++messages;
  const auto threads = static_cast<std::uint32_t>(block.size()), blocks = static_cast<std::uint32_t>(block.count());
  // A GPU's block has a group for each message at the least.
  const std::uint32_t whole = threads / messages / Wire::group * Wire::group, lanes = whole == 0 ? 1 : whole;
  for (auto turn = static_cast<std::uint32_t>(block.rank()); turn < messages * lanes; turn += threads) {
    // The message of this turn; each member begins with the one after itself.
    std::uint32_t m = me;
    for (std::uint32_t left = turn / lanes + 1; left != 0;) {
      m = m + 1 == members ? 0 : m + 1;
      if ((whose >> m & 1) != 0) --left;
    }
    // In 32 bits, for a slot has fewer: a division of 64 takes a GPU as long as memory.
    const auto units = static_cast<std::uint32_t>(Wire::units_of(bytes(m)));
    const std::uint32_t share = (units / Wire::group + blocks - 1) / blocks * Wire::group;
    const std::uint32_t begin = static_cast<std::uint32_t>(block.index()) * share;
    const std::uint32_t end = begin + share < units ? begin + share : units;
    f(m, std::uint64_t{begin + turn % lanes}, std::uint64_t{lanes}, std::uint64_t{end});
  }
}

}  // namespace detail

/// What comes from member p may belong where what goes to it is, if both have the same bytes for every p, but must not overlap what is sent
/// otherwise.
template <class Wire, class P = LowLatencyMoveParameters>
struct LowLatencyMove {
  using Parameters = P;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    const detail::Slots<B, Wire> slots(block, p.frame, p.low_latency, p.slot_bytes);
    if (launch.lost()) return launch.finish();
    const std::uint32_t me = p.frame.me, others = p.frame.others(), sends = p.sends(), receives = p.receives();
    launch.send_tokens(~sends);
    detail::for_each_message<Wire>(
        block, p.frame, sends & others, [&](std::uint32_t m) { return p.sent_bytes(m); },
        [&](std::uint32_t m, std::uint64_t first, std::uint64_t step, std::uint64_t end) {
          const std::uint64_t from = p.source(m), bytes = p.sent_bytes(m);
          for (std::uint64_t i = first; i < end; i += ahead * step) send(block, slots, m, from, bytes, i, step, end);
        });
    slots.refresh([&](std::uint32_t m) { return (sends >> m & 1) == 0 ? 0 : Wire::units_of(p.sent_bytes(m)); });
    if ((receives >> me & 1) != 0) {
      const Move own{p.source(me), p.destination(me), p.received_bytes(me)};
      if (own.from != own.to) move_slice(block, own, 0, 0);
    }
    detail::for_each_message<Wire>(
        block, p.frame, receives & others, [&](std::uint32_t m) { return p.received_bytes(m); },
        [&](std::uint32_t m, std::uint64_t first, std::uint64_t step, std::uint64_t end) {
          const std::uint64_t to = p.destination(m), bytes = p.received_bytes(m);
          for (std::uint64_t i = first; i < end; i += ahead * step) {
            if (!receive(block, launch, slots, m, to, bytes, i, step, end)) return;
          }
        });
    launch.await_tokens(~receives);
    launch.finish(slots.counter(), slots.epoch() + 1);
  }

 private:
  static constexpr std::uint32_t ahead =
      Wire::words == 1 ? 4 : 3;  // loads and polls in flight: of more, registers spill

  template <class B>
  CROSSLANE_DEVICE static void send(const B& block, const detail::Slots<B, Wire>& slots, std::uint32_t to,
                                    std::uint64_t from, std::uint64_t bytes, std::uint64_t first, std::uint64_t step,
                                    std::uint64_t end) {
    std::uint64_t data[ahead * Wire::words];
    detail::load_words(block, data, [&](std::uint32_t k) {
      const std::uint64_t i = first + k / Wire::words * step;
      const detail::Bytes8 place = detail::place_in<Wire>(from, bytes, i, k % Wire::words);
      return detail::Bytes8{place.address, i < end ? place.bytes : 0};
    });
    for (std::uint32_t k = 0; k < ahead; ++k)
      if (first + k * step < end) slots.send(to, first + k * step, &data[k * Wire::words]);
  }

  template <class B>
  CROSSLANE_DEVICE static bool receive(const B& block, const Launch<B>& launch, const detail::Slots<B, Wire>& slots,
                                       std::uint32_t from, std::uint64_t to, std::uint64_t bytes, std::uint64_t first,
                                       std::uint64_t step, std::uint64_t end) {
    Word16 unit[ahead] = {};
    std::uint32_t wanted = 0;
    for (std::uint32_t k = 0; k < ahead; ++k) wanted |= (first + k * step < end ? 1U : 0U) << k;
    if (!slots.await(launch, wanted, unit, [&](std::uint32_t k) { return detail::Unit{from, first + k * step}; }))
      return false;
    for (std::uint32_t k = 0; k < ahead; ++k) {
      if ((wanted >> k & 1) == 0) continue;
      std::uint64_t data[Wire::words];
      for (std::uint32_t h = 0; h < Wire::words; ++h) data[h] = Wire::word(unit[k], h);
      detail::store_unit<Wire>(block, to, bytes, first + k * step, data);
    }
    return true;
  }
};

template <class Wire>
using LowLatencyEvenMove = LowLatencyMove<Wire, LowLatencyEvenParameters>;

/// Combines in the order of ranks, from the lowest, so that all members get the same bits.
template <class T, class Op>
struct LowLatencyCombine {
  using Parameters = LowLatencyCombineParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    const detail::Slots<B, Packets> slots(block, p.frame, p.low_latency, p.slot_bytes);
    if (launch.lost()) return launch.finish();
    const std::uint64_t bytes = p.count * sizeof(T), granules = (bytes + granule - 1) / granule;
    const std::uint32_t me = p.frame.me, others = ~(std::uint32_t{1} << me);
    const std::uint32_t send_to = bytes == 0 ? 0 : p.send_to & others;
    const std::uint32_t receive_from = bytes == 0 ? 0 : p.receive_from;
    launch.send_tokens(~send_to);
    // A granule belongs to one thread, here and below: so `to` may be where a source is.
    if (send_to != 0) {
      block.for_each_in_grid(granules, [&](std::uint64_t i) {
        if (p.from_stride == 0) {
          send_to_all(block, p, slots, send_to, bytes, i);
        } else {
          send_to_each(block, p, slots, send_to, bytes, i);
        }
      });
    }
    slots.refresh([&](std::uint32_t m) { return (send_to >> m & 1) == 0 ? 0 : (bytes + 7) / 8; });
    if (receive_from != 0) {
      block.for_each_in_grid(granules,
                             [&](std::uint64_t i) { receive(block, p, launch, slots, receive_from, bytes, i); });
    }
    launch.await_tokens(~receive_from);
    launch.finish(slots.counter(), slots.epoch() + 1);
  }

 private:
  // Whole elements: one packet, or two for elements of 16 bytes.
  static constexpr std::uint32_t granule = sizeof(T) > 8 ? 16 : 8, packets = granule / 8;
  // Loads and polls in flight. Of eight registers spill, and each launch has twice the code to fetch (a reduce-scatter of 32 KiB by four ranks
  // of an H200, in a graph: 6.3 us with eight, 4.6 with four).
  static constexpr std::uint32_t elements = granule / sizeof(T), ahead = 4 / packets;
  struct alignas(8) Granule {
    T element[elements];
  };

  // Word k of granule i of a buffer.
  CROSSLANE_DEVICE static detail::Bytes8 place(std::uint64_t buffer, std::uint64_t bytes, std::uint64_t i,
                                               std::uint32_t k) {
    const std::uint64_t at = i * granule + 8 * k;
    return {buffer + at, at < bytes ? bytes - at : 0};
  }

  // Granule i, the same for all.
  template <class B>
  CROSSLANE_DEVICE static void send_to_all(const B& block, const Parameters& p, const detail::Slots<B, Packets>& slots,
                                           std::uint32_t send_to, std::uint64_t bytes, std::uint64_t i) {
    std::uint64_t data[packets];
    detail::load_words(block, data, [&](std::uint32_t h) { return place(p.from, bytes, i, h); });
    for (std::uint32_t k = 1; k < p.frame.members; ++k) {
      const std::uint32_t m = p.frame.after(k);
      if ((send_to >> m & 1) == 0) continue;
      for (std::uint32_t h = 0; h < packets; ++h) slots.send(m, i * packets + h, &data[h]);
    }
  }

  // Granule i of what each of them gets.
  template <class B>
  CROSSLANE_DEVICE static void send_to_each(const B& block, const Parameters& p, const detail::Slots<B, Packets>& slots,
                                            std::uint32_t send_to, std::uint64_t bytes, std::uint64_t i) {
    const auto wanted = [&](std::uint32_t k) { return k < p.frame.members && (send_to >> p.frame.after(k) & 1) != 0; };
    CROSSLANE_ROLLED
    for (std::uint32_t first = 1; first < p.frame.members; first += ahead) {
      std::uint64_t data[ahead * packets];
      detail::load_words(block, data, [&](std::uint32_t k) {
        const std::uint32_t to = first + k / packets;
        if (!wanted(to)) return detail::Bytes8{0, 0};
        return place(p.from + p.frame.after(to) * p.from_stride, bytes, i, k % packets);
      });
      for (std::uint32_t k = 0; k < ahead; ++k) {
        if (!wanted(first + k)) continue;
        for (std::uint32_t h = 0; h < packets; ++h)
          slots.send(p.frame.after(first + k), i * packets + h, &data[k * packets + h]);
      }
    }
  }

  template <class B>
  CROSSLANE_DEVICE static void receive(const B& block, const Parameters& p, const Launch<B>& launch,
                                       const detail::Slots<B, Packets>& slots, std::uint32_t receive_from,
                                       std::uint64_t bytes, std::uint64_t i) {
    const std::uint32_t me = p.frame.me;
    std::uint64_t own[packets] = {}, result[packets] = {};
    if ((receive_from >> me & 1) != 0)
      detail::load_words(block, own, [&](std::uint32_t h) { return place(p.from + me * p.from_stride, bytes, i, h); });
    bool any = false;
    CROSSLANE_ROLLED
    for (std::uint32_t first = 0; first < p.frame.members; first += ahead) {
      const auto takes_part = [&](std::uint32_t k) {
        return first + k < p.frame.members && (receive_from >> (first + k) & 1) != 0;
      };
      Word16 packet[ahead * packets] = {};
      std::uint32_t wanted = 0;
      for (std::uint32_t k = 0; k < ahead * packets; ++k)
        wanted |= (takes_part(k / packets) && first + k / packets != me ? 1U : 0U) << k;
      const auto from = [&](std::uint32_t k) { return detail::Unit{first + k / packets, i * packets + k % packets}; };
      if (!slots.await(launch, wanted, packet, from)) return;
      for (std::uint32_t k = 0; k < ahead; ++k) {
        if (!takes_part(k)) continue;
        std::uint64_t data[packets];
        for (std::uint32_t h = 0; h < packets; ++h)
          data[h] = first + k == me ? own[h] : Packets::word(packet[k * packets + h], 0);
        if (any) {
          combine(result, data);
        } else {
          std::memcpy(result, data, sizeof(data));
        }
        any = true;
      }
    }
    for (std::uint32_t h = 0; h < packets; ++h) detail::store_word(block, place(p.to, bytes, i, h), result[h]);
  }

  CROSSLANE_DEVICE static void combine(std::uint64_t (&result)[packets], const std::uint64_t (&data)[packets]) {
    Granule left, right;
    std::memcpy(&left, result, granule);
    std::memcpy(&right, data, granule);
    for (std::uint32_t k = 0; k < elements; ++k) left.element[k] = Op::apply(left.element[k], right.element[k]);
    std::memcpy(result, &left, granule);
  }
};

}  // namespace crosslane::kernel
