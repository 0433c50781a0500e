// Moves of large equal blocks between one member and all others, to it or from it, pushed through the receivers' large windows in one
// kernel. Who is that one is the caller's: it must not know collectives.
#pragma once

#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

// Each member either sends or receives. Each block has its slice of every message, in chunks: chunk k goes to place k % places of the
// pair and the block in the receiver's window, once that is free.
//
//   sender, chunk k     wait for the receivers' step k + 1 - places (from k = places on), write chunk k, barrier, post k + 1
//   receiver, chunk k   wait for the senders' step k + 1, copy chunk k out, barrier, post k + 1
//
//   own steps[b][p] of launch L   what it means, and what is allowed then
//   >= 0 (nothing of L)           p's block b may be anywhere: a sender writes its first `places` chunks
//   >= k + 1, p sends             p's chunk k is in my window: I may read it
//   >= k + 1, p receives          p has read my chunk k: I may write chunk k + places
//
// What was in the windows before is parted from this launch by its start barrier, as is this launch from the next: large windows are
// not double-buffered. Nobody waits at the end: who has read has all, and who has written is known to have ended by the barrier that
// starts whatever uses the window next.

// Where the receiver is a root that has told where its blocks belong (Landing), each sender writes its message there, and a barrier ends it.
// So does the one sender where all receivers have told where theirs do (Parts).

struct PushedMoveParameters {
  Frame frame;
  std::uint64_t bytes;                 ///< of each message
  std::uint64_t chunk_bytes, places;   ///< chunk_bytes: a multiple of 16; equal on all members
  std::uint32_t send_to;               ///< a bit a peer; or
  std::uint32_t receive_from;          ///< the same. One of the two is 0
  std::uint64_t window[most_members];  ///< pushed_window_bytes() of each member, as mapped here; 16-byte aligned
  std::uint64_t user[most_members];    ///< own memory: where what goes to that peer is, or belongs that comes from it
  Move own;                            ///< what stays here; 0 bytes: nothing
  std::uint32_t root;                  ///< who may tell where the blocks that it receives belong; most_members: nobody
  Landing landing;
  bool tells;  ///< all members tell where what they receive belongs; who sends tells of any place
  Parts parts;
};
static_assert(sizeof(PushedMoveParameters) <= 4096, "what a launch takes");

constexpr std::uint64_t pushed_window_bytes(std::uint64_t blocks, std::uint64_t members, std::uint64_t places,
                                            std::uint64_t chunk_bytes) {
  return blocks * places * members * chunk_bytes;
}

struct PushedMove {
  using Parameters = PushedMoveParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (launch.lost()) return launch.finish();
    std::uint64_t heard, parts[most_members];
    if (launch.start_barrier(p.root, p.landing, heard, p.tells ? &p.parts : nullptr)) {
      if (heard != Landing::nowhere) {
        straight(block, p, launch, p.landing.find(heard));
      } else if (p.tells && launch.hear(parts)) {
        straight_to_all(block, p, launch, parts);
      } else {
        through_windows(block, p, launch);
      }
    }
    launch.finish();
  }

 private:
  template <class B>
  CROSSLANE_DEVICE static void straight(const B& block, const Parameters& p, const Launch<B>& launch,
                                        std::uint64_t landing) {
    const std::uint32_t me = p.frame.me;
    if (me == p.root) {
      move_tiles(block, &p.own, 1);
    } else if (p.send_to != 0) {
      const Move move{p.user[p.root], landing + me * p.bytes, p.bytes};
      move_tiles(block, &move, 1);
    }
    launch.barrier(2);
  }

  template <class B>
  CROSSLANE_DEVICE static void straight_to_all(const B& block, const Parameters& p, const Launch<B>& launch,
                                               const std::uint64_t (&heard)[most_members]) {
    if (p.send_to != 0) {
      move_tiles(block, p.frame.members, p.bytes, [&](std::uint32_t i) {
        const std::uint32_t m = p.frame.after(i);
        if (m == p.frame.me) return p.own;
        if ((p.send_to >> m & 1) == 0) return Move{0, 0, 0};
        return Move{p.user[m], p.parts.find(heard[m], m, p.frame.members), p.bytes};
      });
    }
    launch.barrier(2);
  }

  template <class B>
  CROSSLANE_DEVICE static void through_windows(const B& block, const Parameters& p, const Launch<B>& launch) {
    const Slice slice = slice_of(p.bytes, block.index(), block.count());
    // Of the first block, which has the longest slice: all blocks of all members go as many steps.
    const std::uint64_t chunks = (slice_of(p.bytes, 0, block.count()).end + p.chunk_bytes - 1) / p.chunk_bytes;
    const bool sends = p.send_to != 0;
    const std::uint32_t peers = sends ? p.send_to : p.receive_from;
    for (std::uint64_t k = 0; peers != 0 && k < chunks; ++k) {
      if ((!sends || k >= p.places) && !launch.await_step(sends ? k + 1 - p.places : k + 1, peers)) break;
      move_together(block, p.frame.members,
                    [&](std::uint32_t i) { return piece(block, p, slice, sends, peers, i, k); });
      block.barrier();
      launch.post_step(k + 1, peers);
    }
  }

  // Chunk k of the message from or to the i-th member from this one on; of the own block for the first.
  template <class B>
  CROSSLANE_DEVICE static Move piece(const B& block, const Parameters& p, Slice slice, bool sends, std::uint32_t peers,
                                     std::uint32_t i, std::uint64_t k) {
    const std::uint32_t me = p.frame.me, m = p.frame.after(i);
    const std::uint64_t wanted = slice.begin + k * p.chunk_bytes;
    const std::uint64_t begin = wanted < slice.end ? wanted : slice.end;
    const std::uint64_t bytes = slice.end - begin < p.chunk_bytes ? slice.end - begin : p.chunk_bytes;
    if (m == me) return p.own.bytes == 0 ? Move{0, 0, 0} : Move{p.own.from + begin, p.own.to + begin, bytes};
    if ((peers >> m & 1) == 0) return {0, 0, 0};
    const std::uint32_t receiver = sends ? m : me, sender = sends ? me : m;
    const std::uint64_t place = (block.index() * p.places + k % p.places) * p.frame.members + sender;
    const std::uint64_t window = p.window[receiver] + place * p.chunk_bytes;
    return sends ? Move{p.user[m] + begin, window, bytes} : Move{window, p.user[m] + begin, bytes};
  }
};

}  // namespace crosslane::kernel
