// Copies of a team's kernels, by all threads of a block: each block's slice of a piece, and several pieces at once.
// It must not know whose memory the addresses mean.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel {

struct Move {
  std::uint64_t from, to, bytes;  ///< addresses
};

// What crosses links in whole lines of memory goes faster: eight H200 gather 128 MiB in 358 us where blocks begin with lines, in 404 where they
// begin 16 bytes behind one.
inline constexpr std::uint64_t line_bytes = 128;
/// At multiples of what shares of so many bytes are cut, a power of two: of a line, where that is little beside them.
CROSSLANE_DEVICE constexpr std::uint64_t granule_of(std::uint64_t share) {
  return share < 32 * line_bytes ? 16 : line_bytes;
}
/// With which word from `address` on a thread begins, to go on in steps of the block's size, so that a warp's words begin where a line does.
template <class Word, class B>
CROSSLANE_DEVICE std::uint64_t first_word(const B& block, std::uint64_t address) {
  const std::uint64_t ahead = address % line_bytes / sizeof(Word);
  if (block.size() <= ahead) return block.rank();
  return block.rank() < ahead ? block.rank() + block.size() - ahead : block.rank() - ahead;
}

/// Block b of every member handles slice b of each piece, a function of (bytes, b, blocks) alone, so that what my block
/// b reads was written by the peer's block b before the barrier of the blocks b. So a piece that is read from a window
/// must be the same (first byte and length) as the piece that was written there.
struct Slice {
  std::uint64_t begin, end;  ///< bytes; begin is a multiple of 16
};
CROSSLANE_DEVICE Slice slice_of(std::uint64_t bytes, std::uint64_t index, std::uint64_t blocks) {
  const std::uint64_t share = (bytes + blocks - 1) / blocks, most = granule_of(share) - 1;
  const std::uint64_t step = (share + most) & ~most;
  const std::uint64_t begin = index * step < bytes ? index * step : bytes;
  return {begin, bytes - begin < step ? bytes : begin + step};
}

/// By all threads of the block, in the widest words to which both ends are aligned alike. Shorter than copy_bytes: every
/// kernel carries it.
template <class B>
CROSSLANE_DEVICE_CALL void move_bytes(B block, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  const std::uint64_t apart = to ^ from;
  const std::uint64_t width = apart % 16 == 0 ? 16 : apart % 8 == 0 ? 8 : apart % 4 == 0 ? 4 : 1;
  const std::uint64_t ahead = (0 - to) & (width - 1), head = ahead < bytes ? ahead : bytes;
  const std::uint64_t tail = head + ((bytes - head) & ~(width - 1));
  CROSSLANE_ROLLED
  for (std::uint64_t i = block.rank(); i < head + (bytes - tail); i += block.size()) {
    const std::uint64_t at = i < head ? i : i - head + tail;
    block.store(reinterpret_cast<std::uint8_t*>(to + at), block.load(reinterpret_cast<const std::uint8_t*>(from + at)));
  }
  const auto copy = [&]<class Word>(Word*) {
    block.copy(reinterpret_cast<Word*>(to + head), reinterpret_cast<const Word*>(from + head),
               (tail - head) / sizeof(Word), first_word<Word>(block, to + head), block.size());
  };
  if (width == 16) {
    copy(static_cast<Word16*>(nullptr));
  } else if (width == 8) {
    copy(static_cast<std::uint64_t*>(nullptr));
  } else if (width == 4) {
    copy(static_cast<std::uint32_t*>(nullptr));
  } else {
    copy(static_cast<std::uint8_t*>(nullptr));
  }
}

/// By all threads of the block: reads every byte once and writes it to each of to(0), to(1), ..., in the widest words to which all
/// of them are aligned alike. `turn` says with which to begin: another one for each member, so that none gets all at once.
template <class B, class To>
CROSSLANE_DEVICE void spread_bytes(const B& block, std::uint64_t from, std::uint64_t bytes, std::uint32_t count, To to,
                                   std::uint64_t turn) {
  if (count == 0 || bytes == 0) return;
  std::uint64_t apart = 0;
  CROSSLANE_ROLLED
  for (std::uint32_t d = 0; d < count; ++d) apart |= to(d) ^ from;
  const auto first = static_cast<std::uint32_t>(turn % count);
  // Words begin, begin + 1, ... below end. Loads run ahead of stores, so that several are in flight.
  const auto words = [&]<class Word>(Word*, std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint32_t places = 4;
    CROSSLANE_ROLLED
    for (std::uint64_t at = begin + first_word<Word>(block, to(0) + begin) * sizeof(Word); at < end;
         at += places * block.size() * sizeof(Word)) {
      Word word[places] = {};
      CROSSLANE_UNROLLED
      for (std::uint32_t k = 0; k < places; ++k) {
        const std::uint64_t place = at + k * block.size() * sizeof(Word);
        if (place < end) word[k] = block.load(reinterpret_cast<const Word*>(from + place));
      }
      std::uint32_t d = first;
      CROSSLANE_ROLLED
      for (std::uint32_t i = 0; i < count; ++i) {
        CROSSLANE_UNROLLED
        for (std::uint32_t k = 0; k < places; ++k) {
          const std::uint64_t place = at + k * block.size() * sizeof(Word);
          if (place < end) block.store(reinterpret_cast<Word*>(to(d) + place), word[k]);
        }
        d = d + 1 == count ? 0 : d + 1;
      }
    }
  };
  const std::uint64_t width = apart % 16 == 0 ? 16 : apart % 8 == 0 ? 8 : apart % 4 == 0 ? 4 : 1;
  const std::uint64_t ahead = (0 - from) & (width - 1), head = ahead < bytes ? ahead : bytes;
  const std::uint64_t tail = head + ((bytes - head) & ~(width - 1));
  words(static_cast<std::uint8_t*>(nullptr), 0, head);
  if (width == 16) {
    words(static_cast<Word16*>(nullptr), head, tail);
  } else if (width == 8) {
    words(static_cast<std::uint64_t*>(nullptr), head, tail);
  } else if (width == 4) {
    words(static_cast<std::uint32_t*>(nullptr), head, tail);
  } else {
    words(static_cast<std::uint8_t*>(nullptr), head, tail);
  }
  words(static_cast<std::uint8_t*>(nullptr), tail, bytes);
}

/// This block's slice of a move, the addresses shifted.
template <class B>
CROSSLANE_DEVICE void move_slice(const B& block, const Move& move, std::uint64_t from_shift, std::uint64_t to_shift) {
  const Slice slice = slice_of(move.bytes, block.index(), block.count());
  move_bytes(block, move.to + to_shift + slice.begin, move.from + from_shift + slice.begin, slice.end - slice.begin);
}

/// f(i) gives move i of `count`, addresses and all, for this block. Its threads have loads of several moves in flight,
/// and begin with another move in each block, so that all links are busy at all times.
template <class B, class F>
CROSSLANE_DEVICE void move_together(const B& block, std::uint32_t count, F f) {
  constexpr std::uint32_t batch = 4;
  if (count == 0) return;
  const auto start = static_cast<std::uint32_t>(block.index() % count);
  CROSSLANE_ROLLED
  for (std::uint32_t first = 0; first < count; first += batch) {
    Move move[batch];
    std::uint64_t longest = 0, ends = 0;
    for (std::uint32_t k = 0; k < batch; ++k) {
      move[k] = {0, 0, 0};
      if (first + k >= count) continue;
      const std::uint32_t i = start + first + k;
      move[k] = f(i < count ? i : i - count);
      if (move[k].bytes == 0) continue;
      ends |= move[k].from | move[k].to;
      longest = move[k].bytes > longest ? move[k].bytes : longest;
    }
    if (ends % 16 != 0 || count == 1) {
      for (std::uint32_t k = 0; k < batch; ++k) move_bytes(block, move[k].to, move[k].from, move[k].bytes);
      continue;
    }
    const std::uint64_t step = block.size() * 16;
    CROSSLANE_ROLLED
    for (std::uint64_t at = block.rank() * 16; at < longest; at += step) {
      Word16 word[batch] = {};
      for (std::uint32_t k = 0; k < batch; ++k)
        if (at + 16 <= move[k].bytes) word[k] = block.load(reinterpret_cast<const Word16*>(move[k].from + at));
      for (std::uint32_t k = 0; k < batch; ++k)
        if (at + 16 <= move[k].bytes) block.store(reinterpret_cast<Word16*>(move[k].to + at), word[k]);
    }
    for (std::uint32_t k = 0; k < batch; ++k) {
      const std::uint64_t done = move[k].bytes / 16 * 16;
      if (done != move[k].bytes) move_bytes(block, move[k].to + done, move[k].from + done, move[k].bytes - done);
    }
  }
}

/// This block's slices of several moves, the addresses shifted.
template <class B>
CROSSLANE_DEVICE void move_slices(const B& block, const Move* moves, std::uint32_t count, std::uint64_t from_shift,
                                  std::uint64_t to_shift) {
  move_together(block, count, [&](std::uint32_t i) {
    const Slice slice = slice_of(moves[i].bytes, block.index(), block.count());
    return Move{moves[i].from + from_shift + slice.begin, moves[i].to + to_shift + slice.begin,
                slice.end - slice.begin};
  });
}

/// Several moves shared by all blocks, where no block has to know what another one has moved: tile by tile, one to a block, so that all are
/// at work on one stretch of memory, and each on one peer's at a time. That gets further than slices do (four H200, 128 MiB gathered by all:
/// 302 us with 64 blocks rather than 324). f(i) gives move i of `count`, of `longest` bytes at most.
template <class B, class F>
CROSSLANE_DEVICE void move_tiles(const B& block, std::uint32_t count, std::uint64_t longest, F f) {
  constexpr std::uint64_t tile = 32 * 1024;  // what a block's threads have in flight
  if (longest * count < block.count() * tile) {
    return move_together(block, count, [&](std::uint32_t i) {
      const Move move = f(i);
      const Slice slice = slice_of(move.bytes, block.index(), block.count());
      return Move{move.from + slice.begin, move.to + slice.begin, slice.end - slice.begin};
    });
  }
  // From round to round blocks turn to other moves, for the longest may be longer than all others.
  const std::uint64_t tiles = (longest + tile - 1) / tile;
  const std::uint64_t a_round = block.count() < count ? 1 : block.count() / count;
  CROSSLANE_ROLLED
  for (std::uint64_t k = block.index(); k < tiles * count; k += block.count()) {
    const std::uint64_t number = k / count, begin = number * tile;
    const Move move = f(static_cast<std::uint32_t>((k + number / a_round) % count));
    if (begin >= move.bytes) continue;
    const std::uint64_t left = move.bytes - begin;
    move_bytes(block, move.to + begin, move.from + begin, left < tile ? left : tile);
  }
}
template <class B>
CROSSLANE_DEVICE void move_tiles(const B& block, const Move* moves, std::uint32_t count) {
  std::uint64_t longest = 0;
  CROSSLANE_ROLLED
  for (std::uint32_t i = 0; i < count; ++i) longest = moves[i].bytes > longest ? moves[i].bytes : longest;
  move_tiles(block, count, longest, [&](std::uint32_t i) { return moves[i]; });
}

}  // namespace crosslane::kernel
