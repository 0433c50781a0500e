// Data exchange through peers' mapped memory with plain loads and stores between barriers of the team: moves without
// arithmetic, and reductions. What goes where is the caller's: it must not know collectives.
#pragma once

#include "kernel/combine.h"
#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

/// For ExchangeMove. Addresses that get `parity` added when the launch's number is odd are marked +.
struct ExchangeMoveParameters {
  Frame frame;
  std::uint64_t parity;  ///< a multiple of 16; 0: no window is used (zero-copy)
  std::uint32_t ins, moves;
  bool end_barrier;         ///< needed with zero-copy: when it is over, peers have read my memory and written mine
  Move in[most_members];    ///< before the barrier: own memory to own window (to+)
  Move move[most_members];  ///< after it: from peers' memory or windows (from+); or zero-copy push: own to peers'
};

/// For ExchangeCombine.
struct ExchangeCombineParameters {
  Frame frame;
  std::uint64_t parity;
  std::uint32_t ins, outs, sources, destinations;  ///< sources: at least 1
  bool second_barrier;                 ///< between combining and `out` (two-shot), or as the end barrier (zero-copy)
  bool own_results;                    ///< no peer reads them, and none is a peer's
  bool destination_parity;             ///< destinations are in windows, and double-buffered
  Move in[most_members];               ///< own memory to own window (to+)
  std::uint64_t source[most_members];  ///< + combined in this order
  std::uint64_t destination[most_members];  ///< each gets the result; + if destination_parity
  std::uint64_t count;                      ///< elements
  Move out[most_members];                   ///< after the second barrier: own window to own memory (from+)
};

/// For ExchangeSpread: straight between users' buffers.
struct ExchangeSpreadParameters {
  Frame frame;
  std::uint64_t from, bytes;       ///< maybe a peer's memory; 0 bytes: only the barriers
  std::uint32_t destinations;      ///< maybe none
  std::uint64_t to[most_members];  ///< own memory and peers'; each gets all the bytes
};

struct ExchangeMove {
  using Parameters = ExchangeMoveParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    const std::uint64_t shift = launch.shift(p.parity);
    move_slices(block, p.in, p.ins, 0, shift);
    // A launch of barriers alone vouches for what was enqueued before it, such as copies into peers' memory.
    const bool vouches = p.ins != 0 || p.moves == 0;
    if (launch.barrier(1, vouches ? Stored::something : Stored::nothing)) {
      // Out of a window a block reads what the peer's block of its number wrote there.
      if (p.parity != 0) {
        move_slices(block, p.move, p.moves, shift, 0);
      } else {
        move_tiles(block, p.move, p.moves);
      }
      if (p.end_barrier) launch.barrier(2);
    }
    launch.finish();
  }
};

/// Reads the bytes once and writes them to several places. No destination overlaps what is read, on any member.
struct ExchangeSpread {
  using Parameters = ExchangeSpreadParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    if (launch.barrier(1, Stored::nothing)) {
      const Slice slice = slice_of(p.bytes, block.index(), block.count());
      spread_bytes(
          block, p.from + slice.begin, slice.end - slice.begin, p.destinations,
          [&](std::uint32_t d) { return p.to[d] + slice.begin; }, p.frame.me + block.index());
      launch.barrier(2);
    }
    launch.finish();
  }
};

/// Every source is read once and every result written once to each destination, by the same thread: a destination may
/// be a source (in place), but not overlap one otherwise.
template <class T, class Op>
struct ExchangeCombine {
  using Parameters = ExchangeCombineParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    const std::uint64_t shift = launch.shift(p.parity);
    move_slices(block, p.in, p.ins, 0, shift);
    if (launch.barrier(1, p.ins == 0 ? Stored::nothing : Stored::something)) {
      const std::uint64_t to_shift = p.destination_parity ? shift : 0;
      // Out of a window, or into one that peers then read, a block combines what the peers' blocks of its number have.
      Combine<T, Op>::shared(
          block, p.count * sizeof(T), p.parity != 0, p.sources, [&](std::uint32_t i) { return p.source[i] + shift; },
          p.destinations, [&](std::uint32_t i) { return p.destination[i] + to_shift; }, p.frame.me);
      if (!p.second_barrier || launch.barrier(2, p.own_results ? Stored::nothing : Stored::something)) {
        move_slices(block, p.out, p.outs, shift, 0);
      }
    }
    launch.finish();
  }
};

}  // namespace crosslane::kernel
