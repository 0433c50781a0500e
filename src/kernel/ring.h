// Collectives of large arrays along a ring of members in one kernel: each writes to the next one alone, which links carry faster than
// writes to all at once (eight H200 with NVSwitch: 365 GB/s out of each, rather than 345; reads 335). What travels is the caller's: it
// must not know collectives.
#pragma once

#include "kernel/combine.h"
#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

// Shards of an array travel from member to member. The member where a shard is at hop 0 sends its own part of it; at a hop before
// `complete` it is combined with the part of the member that it comes to, and goes on into the next one's window; at hop `complete`, too,
// and is a result then, which goes on from array to array until hop `end`. (complete = 0: nothing is combined.) So
//
//   all-reduce       every member starts a shard, complete = n - 1, end = 2 n - 2
//   reduce-scatter   the same without the way of the results, end = n - 1
//   all-gather       the same without the way of the parts, complete = 0, end = n - 1
//   reduce           one shard, which starts behind the root and ends there; broadcast: one that starts at it
//
// Each block has its slice of every shard, in chunks that it handles one after another: of a round of `round` chunks all that hop 0
// brings, then hop 1's, and so on; then the next round. A chunk's handling:
//
//   await    the chunk from the member before (hop 0: nothing); for one that goes into a window, a free place there
//   handle   load, combine, store: into the next one's window or array, and into the own array
//   barrier, post    to the next one that one more has come, and to the one before that one more place is free
//
//   own steps[b][before] of launch L   the member before has sent so many chunks, in the order in which this one awaits them
//   own steps[b][next]                 the next one is through with so many of the chunks that this one put into its window
//
// Those two are different members: a ring has three at least. Chunk k of those that go through a window (from 1 on) lies at place
// (k - 1) % places, and may be written when the next member is through with k - places of them. With more places than a round has
// chunks, nobody waits for a place in a circle: a round's first hop has them all, and at chunk j of a later hop the next one need not be
// further than chunk j - 1 of that hop. Results are in nobody's way: who gets one had passed its own part on, or the shard could not
// have been complete. The last thing a member awaits is the last chunk of its array; between launches the start barrier parts.

struct RingParameters {
  Frame frame;
  std::uint64_t chunk_bytes;    ///< a multiple of 16
  std::uint32_t round, places;  ///< chunks; places > round
  std::uint64_t from;           ///< own array of parts
  std::uint64_t result;         ///< own array of results; 0: none are wanted here. May be the one of parts
  std::uint64_t next_result;    ///< the next member's, as mapped here, where a result goes on to it
  std::uint64_t window,
      next_window;        ///< ring_window_bytes(), own and the next one's; 16-byte aligned. Not used where complete = 0
  std::uint32_t shards;   ///< 1, or one that starts at each member
  std::uint32_t starter;  ///< at which member shard 0 starts; the others at those after it
  std::uint32_t complete, end;              ///< hops
  std::uint64_t shard_begin[most_members];  ///< which bytes of the arrays a shard is: first,
  std::uint64_t shard_bytes[most_members];  ///< and how many, whole elements. Equal on all members
};

constexpr std::uint64_t ring_window_bytes(std::uint64_t blocks, std::uint64_t places, std::uint64_t chunk_bytes) {
  return blocks * places * chunk_bytes;
}

/// `Handle` combines a chunk of one array or two into one place or two, or none: see Combine::pair.
template <class Handle>
struct Ring {
  using Parameters = RingParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    if (launch.barrier(1, Stored::nothing)) go_round(block, p, launch);
    launch.finish();
  }

 private:
  // Chunks so far: sent and received, and those of them that went through windows.
  struct Counts {
    std::uint64_t sent, received, placed, taken;
  };

  template <class B>
  CROSSLANE_DEVICE static void go_round(const B& block, const Parameters& p, const Launch<B>& launch) {
    const std::uint32_t n = p.frame.members, at = (p.frame.me + n - p.starter) % n;
    // Of one shard this member sees one hop; of one from each, all hops.
    const std::uint32_t first = p.shards == 1 ? at : 0, last = p.shards == 1 ? at : p.end;
    std::uint64_t longest = 0;
    CROSSLANE_ROLLED
    for (std::uint32_t s = 0; s < p.shards; ++s) longest = p.shard_bytes[s] > longest ? p.shard_bytes[s] : longest;
    const std::uint64_t chunks = (slice_of(longest, 0, block.count()).end + p.chunk_bytes - 1) / p.chunk_bytes;
    Counts counts{};
    CROSSLANE_ROLLED
    for (std::uint64_t begin = 0; begin < chunks; begin += p.round) {
      const std::uint64_t end = chunks - begin < p.round ? chunks : begin + p.round;
      CROSSLANE_ROLLED
      for (std::uint32_t hop = first; hop <= last; ++hop) {
        const std::uint32_t shard = p.shards == 1 ? 0 : (at + 2 * n - hop % n) % n;
        CROSSLANE_ROLLED
        for (std::uint64_t k = begin; k < end; ++k)
          if (!chunk(block, p, launch, hop, shard, k, counts)) return;
      }
    }
  }

  // False where a member did not come.
  template <class B>
  CROSSLANE_DEVICE static bool chunk(const B& block, const Parameters& p, const Launch<B>& launch, std::uint32_t hop,
                                     std::uint32_t shard, std::uint64_t k, Counts& counts) {
    const std::uint32_t next = p.frame.after(1), before = p.frame.after(p.frame.members - 1);
    const bool arrives = hop != 0, sends = hop < p.end;
    const bool from_window = arrives && hop <= p.complete, into_window = hop < p.complete;
    counts.received += arrives ? 1 : 0;
    counts.sent += sends ? 1 : 0;
    counts.taken += from_window ? 1 : 0;
    counts.placed += into_window ? 1 : 0;
    const std::uint64_t free = into_window && counts.placed > p.places ? counts.placed - p.places : 0;
    if (!launch.await_steps([&](std::uint64_t m) {
          return m == before && arrives ? counts.received : m == next ? free : 0;
        }))
      return false;

    const Slice slice = slice_of(p.shard_bytes[shard], block.index(), block.count());
    const std::uint64_t wanted = slice.begin + k * p.chunk_bytes, start = wanted < slice.end ? wanted : slice.end;
    const std::uint64_t bytes = slice.end - start < p.chunk_bytes ? slice.end - start : p.chunk_bytes;
    const std::uint64_t offset = p.shard_begin[shard] + start;
    // A result that has come lies in the own array; else there is the own part.
    const bool is_result = hop >= p.complete, passes_on = hop > p.complete;
    const std::uint64_t own = (passes_on ? p.result : p.from) + offset;
    const std::uint64_t come = place(block, p, p.window, counts.taken);
    const std::uint64_t onward = into_window ? place(block, p, p.next_window, counts.placed) : p.next_result + offset;
    const bool keeps = is_result && !passes_on && p.result != 0 && (from_window || p.result != p.from);
    if (sends || keeps)
      Handle::run(block, bytes, from_window ? come : own, from_window ? own : 0, sends ? onward : 0,
                  keeps ? p.result + offset : 0);
    block.barrier();
    launch.post_steps([&](std::uint64_t m) {
      return m == next && sends ? counts.sent : m == before && from_window ? counts.taken : 0;
    });
    return true;
  }

  template <class B>
  CROSSLANE_DEVICE static std::uint64_t place(const B& block, const Parameters& p, std::uint64_t window,
                                              std::uint64_t number) {
    return window + (block.index() * p.places + (number - 1) % p.places) * p.chunk_bytes;
  }
};

namespace detail {

template <class T, class Op>
struct CombineChunk {
  template <class B>
  CROSSLANE_DEVICE static void run(const B& block, std::uint64_t bytes, std::uint64_t first, std::uint64_t second,
                                   std::uint64_t to, std::uint64_t also) {
    Combine<T, Op>::pair(block, bytes, first, second, to, also);
  }
};

struct SpreadChunk {
  template <class B>
  CROSSLANE_DEVICE static void run(const B& block, std::uint64_t bytes, std::uint64_t from, std::uint64_t /*second*/,
                                   std::uint64_t to, std::uint64_t also) {
    spread_bytes(
        block, from, bytes, (to != 0 ? 1 : 0) + (also != 0 ? 1 : 0),
        [&](std::uint32_t d) { return d == 0 && to != 0 ? to : also; }, 0);
  }
};

}  // namespace detail

template <class T, class Op>
using RingReduction = Ring<detail::CombineChunk<T, Op>>;
using RingMove = Ring<detail::SpreadChunk>;

}  // namespace crosslane::kernel
