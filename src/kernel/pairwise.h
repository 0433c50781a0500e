// Moves between all pairs of a team's members, each pair with sizes of its own that nobody else knows: gathers, scatters and all-to-alls
// of unequal blocks, through the members' windows. What goes where is the caller's: it must not know collectives.
#pragma once

#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

// Each block has its slice of every message, in chunks. A chunk passes through the sender's window, at place k % 2 of the pair and
// the block. Members go on in steps, but each pair only as far as the longer of its two messages has chunks: both sides know these
// two sizes, and no other size matters to them. Step k of a block:
//
//   wait               until the peers with a chunk k (step 0: all peers) have posted k + 1
//   read chunk k       of these peers' windows into the own memory; and write chunk k + 1 for them into the own window
//   barrier, post k+2  to the peers with a chunk k + 1
//
//   own steps[b][p] of launch L   what it means, and what is allowed then
//   >= 0 (nothing of L)           p's block b may be anywhere: nothing
//   >= k + 1                      p's block b has its chunk k for me in its window, which I may read; and it has read my chunk
//                                 k - 1, over which I may write chunk k + 1
//
// The end of the last step is not told to anybody: windows are double-buffered by the launch's number too (team.h), which holds
// as every launch hears of all peers in step 0. No member waits in a circle: in each step all post before they wait, and whom
// one waits for in a step takes part in it.

struct PairwiseMoveParameters {
  Frame frame;
  std::uint64_t parity;                ///< added to the windows' addresses when the launch's number is odd
  std::uint64_t chunk_bytes;           ///< a multiple of 16, equal on all members
  std::uint64_t window[most_members];  ///< pairwise_window_bytes() of each member, as mapped here; 16-byte aligned
  Move send[most_members];             ///< from, bytes to member p: receive[me].bytes there
  Move receive[most_members];          ///< to, bytes from member p. Own entry: a copy from send[me].from
};

inline constexpr std::uint64_t pairwise_places = 2;
constexpr std::uint64_t pairwise_window_bytes(std::uint64_t blocks, std::uint64_t members, std::uint64_t chunk_bytes) {
  return blocks * pairwise_places * members * chunk_bytes;
}

/// What is received must not overlap what is sent, but that an own block may stay where it is, and that what comes from a member may take the place
/// of what goes to it, where both are as long: each chunk has left before the one that takes its place is asked for.
struct PairwiseMove {
  using Parameters = PairwiseMoveParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    const std::uint64_t shift = launch.shift(p.parity);
    const std::uint32_t me = p.frame.me, peers = p.frame.members - 1;
    move_together(block, peers, [&](std::uint32_t i) { return write(block, p, shift, peer(p, i), 0); });
    block.barrier();
    launch.post_step(1);
    if (p.send[me].from != p.receive[me].to)
      move_slice(block, Move{p.send[me].from, p.receive[me].to, p.receive[me].bytes}, 0, 0);
    std::uint32_t with = ~std::uint32_t{0};
    for (std::uint64_t k = 0; with != 0 && launch.await_step(k + 1, with); ++k) {
      move_together(block, 2 * peers, [&](std::uint32_t i) {
        return i % 2 == 0 ? read(block, p, shift, peer(p, i / 2), k) : write(block, p, shift, peer(p, i / 2), k + 1);
      });
      with = partners(block, p, k + 1);
      if (with == 0) break;
      block.barrier();
      launch.post_step(k + 2, with);
    }
    launch.finish();
  }

 private:
  // The peers in turn, from the next one on.
  CROSSLANE_DEVICE static std::uint32_t peer(const Parameters& p, std::uint32_t i) { return p.frame.after(1 + i); }

  // Chunk k of this block's slice of a message; nothing behind its end.
  template <class B>
  CROSSLANE_DEVICE static Slice chunk(const B& block, const Parameters& p, std::uint64_t bytes, std::uint64_t k) {
    const Slice slice = slice_of(bytes, block.index(), block.count());
    const std::uint64_t wanted = slice.begin + k * p.chunk_bytes;
    const std::uint64_t begin = wanted < slice.end ? wanted : slice.end;
    return {begin, slice.end - begin < p.chunk_bytes ? slice.end : begin + p.chunk_bytes};
  }

  template <class B>
  CROSSLANE_DEVICE static std::uint64_t place(const B& block, const Parameters& p, std::uint64_t shift,
                                              std::uint32_t sender, std::uint32_t receiver, std::uint64_t k) {
    const std::uint64_t index = (block.index() * pairwise_places + k % pairwise_places) * p.frame.members + receiver;
    return p.window[sender] + shift + index * p.chunk_bytes;
  }

  template <class B>
  CROSSLANE_DEVICE static Move write(const B& block, const Parameters& p, std::uint64_t shift, std::uint32_t to,
                                     std::uint64_t k) {
    const Slice part = chunk(block, p, p.send[to].bytes, k);
    return {p.send[to].from + part.begin, place(block, p, shift, p.frame.me, to, k), part.end - part.begin};
  }
  template <class B>
  CROSSLANE_DEVICE static Move read(const B& block, const Parameters& p, std::uint64_t shift, std::uint32_t from,
                                    std::uint64_t k) {
    const Slice part = chunk(block, p, p.receive[from].bytes, k);
    return {place(block, p, shift, from, p.frame.me, k), p.receive[from].to + part.begin, part.end - part.begin};
  }

  // A bit for each peer with which this block has a chunk k, in either direction.
  template <class B>
  CROSSLANE_DEVICE static std::uint32_t partners(const B& block, const Parameters& p, std::uint64_t k) {
    std::uint32_t bits = 0;
    CROSSLANE_ROLLED
    for (std::uint32_t m = 0; m < p.frame.members; ++m) {
      if (m == p.frame.me) continue;
      const Slice out = chunk(block, p, p.send[m].bytes, k), in = chunk(block, p, p.receive[m].bytes, k);
      if (out.begin != out.end || in.begin != in.end) bits |= std::uint32_t{1} << m;
    }
    return bits;
  }
};

}  // namespace crosslane::kernel
