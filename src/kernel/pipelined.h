// Reductions of large arrays in one kernel: a reduce-scatter by pushes into peers' windows, and pushes of the results to
// whoever wants them, chunk by chunk, so that both use the links in both directions all the time. What goes where is the
// caller's: it must not know collectives.
#pragma once

#include "kernel/combine.h"
#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

// Member p combines shard p of all. Each block of all members has its slice of every shard, in chunks; step k of a block:
//
//   push chunk k       this member's part of chunk k of shard p into p's window, for every peer p
//   wait               until all peers' blocks of this index are through step k - 1
//   combine chunk k-1  of the own shard: own part and what peers pushed, in the order of ranks; into the results
//   barrier, post k+1  both halves with one release
//
//   own steps[b][p] of launch L   what it means, and what is allowed then
//   >= 0 (nothing of L)           p's block b may be anywhere: nothing
//   >= k + 1                      p's block b is through step k: its part of chunk k is in my window; it has read chunk
//                                 k - 1 of its own window, and its results of chunk k - 1 are here
//
// A chunk lies in the window at place k % 3: when a block pushes chunk k it has waited, in step k - 1, for its peers to be
// through step k - 2, in which they read chunk k - 3. The last wait, for the step after the last chunk's, is the launch's
// end barrier: all windows are read and all results are here. Between the launches of a team the start barrier parts, as
// it does for all memory that is not double-buffered.
//
// Where the results of all go to one member that others cannot reach (a collector, who combines nothing), owners write them into its
// window, where it has no parts: those of chunk k - 1 in step k, to place (k - 1) % 3. It copies chunk k - 2 out in step k, once it
// has seen that all are through step k - 1; the next results for that place come in step k + 2, for which their owner has waited
// until the collector was through step k + 1.
//
// Traffic of an all-reduce of S bytes among n GPUs, for each: (n - 1) / n S out and in for the parts, and the same for the
// results: what any all-reduce without a switch's help must move. It is all writes: a read of a peer's memory is a request in one
// direction and its data in the other, so that pulled parts would share their direction with pushed results and with the
// requests. HBM reads S and writes S for the user's arrays; parts in windows (3 chunks a block and peer) are written and
// read in the L2 cache while they fit.

struct PipelinedReductionParameters {
  Frame frame;
  std::uint64_t chunk_bytes;                ///< a multiple of 16
  std::uint64_t from;                       ///< own array
  std::uint64_t shard_begin[most_members];  ///< which bytes of the array each member combines: first,
  std::uint64_t shard_bytes[most_members];  ///< and how many, whole elements; 0: none. Equal on all members
  std::uint64_t window[most_members];  ///< pipelined_window_bytes() of each member, as mapped here; 16-byte aligned
  std::uint32_t results;
  /// Where the own shard's results go, as if all of the array were there: everybody's array for an all-reduce, the root's
  /// for a reduce, the own result less shard_begin for a reduce-scatter. Arrays of results may be those that are combined.
  std::uint64_t result[most_members];
  /// Who collects all results, through its window unless `landing` says where they belong: no shard is its own, and `result` counts there
  /// alone, though all have one. most_members: nobody.
  std::uint32_t collector;
  Landing landing;
  /// Where the results go to one member: all tell each other where their parts are. If all are known, and where a collector's results belong,
  /// owners read the parts and write the results there, and no window is used.
  bool tells;
  Parts parts;
};

static_assert(sizeof(PipelinedReductionParameters) <= 4096, "what a launch takes");

inline constexpr std::uint64_t pipelined_places = 3;
constexpr std::uint64_t pipelined_window_bytes(std::uint64_t blocks, std::uint64_t members, std::uint64_t chunk_bytes) {
  return blocks * pipelined_places * members * chunk_bytes;
}

template <class T, class Op>
struct PipelinedReduction {
  using Parameters = PipelinedReductionParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    // As many steps for all shards and blocks as the longest slice has chunks.
    std::uint64_t longest = 0;
    CROSSLANE_ROLLED
    for (std::uint32_t m = 0; m < members; ++m) longest = p.shard_bytes[m] > longest ? p.shard_bytes[m] : longest;
    const std::uint64_t chunks = (slice_of(longest, 0, block.count()).end + p.chunk_bytes - 1) / p.chunk_bytes;
    std::uint64_t heard;
    bool well = launch.start_barrier(p.collector, p.landing, heard, p.tells ? &p.parts : nullptr);
    const bool rooted = p.collector < members;
    if (well && p.tells && (!rooted || heard != Landing::nowhere) &&
        straight(block, p, launch, rooted ? p.landing.find(heard) : p.result[0]))
      return launch.finish();
    const std::uint64_t landing = p.collector == me ? p.landing.told : p.landing.find(heard);
    const bool through_window = rooted && landing == 0;
    for (std::uint64_t k = 0; well && k <= chunks + 1; ++k) {
      if (k < chunks) {
        move_together(block, members - 1, [&](std::uint32_t i) {
          // The peers in turn, from the next one on.
          const std::uint32_t to = p.frame.after(1 + i);
          const Slice part = chunk(block, p, to, k);
          return Move{p.from + part.begin, place(block, p, to, me, k), part.end - part.begin};
        });
      }
      if (k != 0) {
        well = launch.await_step(k);
        if (!well) break;
        if (p.collector == me && through_window && k >= 2) collect(block, p, k - 2);
        if (k > chunks) break;
        const Slice part = chunk(block, p, me, k - 1);
        const std::uint64_t at_root = through_window ? place(block, p, p.collector, me, k - 1) : landing + part.begin;
        // Sources count from the chunk's first byte, as windows do.
        Combine<T, Op>::run(
            block, {0, part.end - part.begin}, members,
            [&](std::uint32_t m) { return m == me ? p.from + part.begin : place(block, p, me, m, k - 1); }, p.results,
            [&](std::uint32_t r) { return rooted ? at_root : p.result[r] + part.begin; }, me);
      }
      block.barrier();
      launch.post_step(k + 1);
    }
    launch.finish();
  }

 private:
  // False where somebody's part is nowhere.
  template <class B>
  CROSSLANE_DEVICE static bool straight(const B& block, const Parameters& p, const Launch<B>& launch,
                                        std::uint64_t landing) {
    std::uint64_t part[most_members];
    if (!launch.hear(part)) return false;
    const std::uint32_t me = p.frame.me;
    if (me != p.collector) {
      const std::uint32_t members = p.frame.members;
      const std::uint64_t first = p.shard_begin[me];
      CROSSLANE_ROLLED
      for (std::uint32_t m = 0; m < members; ++m)
        part[m] = first + (m == me ? p.from : p.parts.find(part[m], m, members));
      Combine<T, Op>::shared(
          block, p.shard_bytes[me], false, members, [&](std::uint32_t m) { return part[m]; }, 1,
          [&](std::uint32_t /*r*/) { return landing + first; }, me);
    }
    launch.barrier(2);
    return true;
  }

  // Chunk k of this block's slice of a shard, in bytes of the array.
  template <class B>
  CROSSLANE_DEVICE static Slice chunk(const B& block, const Parameters& p, std::uint32_t shard, std::uint64_t k) {
    const Slice slice = slice_of(p.shard_bytes[shard], block.index(), block.count());
    const std::uint64_t wanted = slice.begin + k * p.chunk_bytes;
    const std::uint64_t begin = p.shard_begin[shard] + (wanted < slice.end ? wanted : slice.end);
    const std::uint64_t end = p.shard_begin[shard] + slice.end;
    return {begin, end - begin < p.chunk_bytes ? end : begin + p.chunk_bytes};
  }

  // Chunk k of everybody's results, out of the own window: one after another, for blocks begin with others.
  template <class B>
  CROSSLANE_DEVICE static void collect(const B& block, const Parameters& p, std::uint64_t k) {
    const std::uint32_t me = p.frame.me, members = p.frame.members;
    auto from = static_cast<std::uint32_t>((me + block.index()) % members);
    CROSSLANE_ROLLED
    for (std::uint32_t i = 0; i < members; ++i) {
      const Slice part = chunk(block, p, from, k);
      move_bytes(block, p.result[0] + part.begin, place(block, p, me, from, k), part.end - part.begin);
      from = from + 1 == members ? 0 : from + 1;
    }
  }

  template <class B>
  CROSSLANE_DEVICE static std::uint64_t place(const B& block, const Parameters& p, std::uint32_t owner,
                                              std::uint32_t sender, std::uint64_t k) {
    const std::uint64_t index = (block.index() * pipelined_places + k % pipelined_places) * p.frame.members + sender;
    return p.window[owner] + index * p.chunk_bytes;
  }
};

}  // namespace crosslane::kernel
