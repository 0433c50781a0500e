// Combining several arrays into one, and writing it to several places, by all threads of a block.
// It must not know whose memory the addresses mean.
#pragma once

#include "kernel/block.h"
#include "kernel/move.h"
#include "kernel/operation.h"

#include <cstdint>
#include <cstring>

namespace crosslane::kernel {

/// Every source is read once and every result written once to each destination, by the same thread: a destination may
/// be a source (in place), but not overlap one otherwise. 16 bytes at a time where all is aligned to that, else element
/// by element; byte by byte where something is not even aligned to its element.
template <class T, class Op>
struct Combine {
  /// Bytes [slice) of the arrays at source(0), source(1), ..., in this order, to destination(0), ... . `turn` says with
  /// which destination to begin: another one for each member, so that none gets all at once.
  /// `at_once`, for sources on other GPUs: of more than a few a thread loads a word each before it combines any, and a warp whole lines.
  template <bool at_once = false, class B, class Source, class Destination>
  CROSSLANE_DEVICE static void run(const B& block, Slice slice, std::uint32_t sources, Source source,
                                   std::uint32_t destinations, Destination destination, std::uint64_t turn) {
    if (slice.begin == slice.end) return;
    std::uint64_t ends = slice.begin;
    CROSSLANE_ROLLED
    for (std::uint32_t s = 0; s < sources; ++s) ends |= source(s);
    CROSSLANE_ROLLED
    for (std::uint32_t d = 0; d < destinations; ++d) ends |= destination(d);
    const auto first = static_cast<std::uint32_t>((turn + block.index()) % (destinations == 0 ? 1 : destinations));
    const std::uint64_t vectors_end = slice.begin + (slice.end - slice.begin) / 16 * 16;
    if (ends % 16 == 0) {
      const Slice vectors{slice.begin, vectors_end};
      const std::uint64_t lane = at_once ? first_word<Word16>(block, source(0) + slice.begin) : block.rank();
      if (at_once && sources > few) {
        words<Word16, 2 * few, 1>(block, lane, vectors, sources, source, destinations, destination, first);
      } else {
        words<Word16, few, vector_places>(block, lane, vectors, sources, source, destinations, destination, first);
      }
      if (vectors_end < slice.end) bytes(block, {vectors_end, slice.end}, sources, source, destinations, destination);
    } else if (ends % alignof(T) == 0 && sizeof(T) != 16) {
      words<T, few, 1>(block, block.rank(), slice, sources, source, destinations, destination, first);
    } else {
      bytes(block, slice, sources, source, destinations, destination);
    }
  }

  /// The same of the first `bytes` of one array or two, to one place or two, in few registers. `second`, `to` and `also` may be 0: not there.
  template <class B>
  CROSSLANE_DEVICE static void pair(const B& block, std::uint64_t bytes, std::uint64_t first, std::uint64_t second,
                                    std::uint64_t to, std::uint64_t also) {
    if (((first | second | to | also | bytes) % 16) != 0) {
      const std::uint64_t one_place = to != 0 ? to : also;
      return run(
          block, {0, bytes}, second != 0 ? 2 : 1, [&](std::uint32_t s) { return s == 0 ? first : second; },
          (to != 0 ? 1 : 0) + (also != 0 ? 1 : 0), [&](std::uint32_t d) { return d == 0 ? one_place : also; }, 0);
    }
    constexpr std::uint32_t places = 4;
    const std::uint64_t step = block.size() * sizeof(Word16);
    CROSSLANE_ROLLED
    for (std::uint64_t at = first_word<Word16>(block, to != 0 ? to : also) * sizeof(Word16); at < bytes;
         at += places * step) {
      Word16 word[places] = {};
      CROSSLANE_UNROLLED
      for (std::uint32_t k = 0; k < places; ++k)
        if (at + k * step < bytes) word[k] = block.load(reinterpret_cast<const Word16*>(first + at + k * step));
      if (second != 0) {
        Word16 other[places] = {};
        CROSSLANE_UNROLLED
        for (std::uint32_t k = 0; k < places; ++k)
          if (at + k * step < bytes) other[k] = block.load(reinterpret_cast<const Word16*>(second + at + k * step));
        CROSSLANE_UNROLLED
        for (std::uint32_t k = 0; k < places; ++k) word[k] = one(word[k], other[k]);
      }
      const auto store = [&](std::uint64_t place) {
        CROSSLANE_UNROLLED
        for (std::uint32_t k = 0; k < places; ++k)
          if (at + k * step < bytes) block.store(reinterpret_cast<Word16*>(place + at + k * step), word[k]);
      };
      if (to != 0) store(to);
      if (also != 0) store(also);
    }
  }

  /// The same of all bytes up to `bytes`, by all blocks: each has its slice (slice_of), or, where no block has to know what another one
  /// combines, they take tiles in turns, so that all are at work on one stretch of memory.
  template <class B, class Source, class Destination>
  CROSSLANE_DEVICE static void shared(const B& block, std::uint64_t bytes, bool by_slices, std::uint32_t sources,
                                      Source source, std::uint32_t destinations, Destination destination,
                                      std::uint64_t turn) {
    const Slice slice = slice_of(bytes, block.index(), block.count());
    // What a block's threads have in flight; emulated blocks have one thread.
    const std::uint64_t in_flight = block.size() * vector_places * sizeof(Word16);
    const std::uint64_t most = in_flight < least_tile ? least_tile : in_flight,
                        share = slice_of(bytes, 0, block.count()).end;
    const std::uint64_t piece = by_slices || share < most ? (share + 15) / 16 * 16 : most;
    const std::uint64_t step = by_slices ? bytes : block.count() * piece;
    CROSSLANE_ROLLED
    for (std::uint64_t at = by_slices ? slice.begin : block.index() * piece; at < bytes; at += step)
      run<true>(block, {at, bytes - at < piece ? bytes : at + piece}, sources, source, destinations, destination, turn);
  }

 private:
  static constexpr std::uint64_t least_tile = 4096;

  template <class Word>
  struct Elements {
    T element[sizeof(Word) / sizeof(T)];
  };

  template <class Word>
  CROSSLANE_DEVICE static Word one(Word in, Word inout) {
    Elements<Word> left, right;
    std::memcpy(&left, &in, sizeof(Word));
    std::memcpy(&right, &inout, sizeof(Word));
    for (unsigned k = 0; k < sizeof(Word) / sizeof(T); ++k)
      right.element[k] = Op::apply(left.element[k], right.element[k]);
    std::memcpy(&inout, &right, sizeof(Word));
    return inout;
  }

  // A multiple of the word. A thread has loads in flight from `batch` sources at so many places.
  static constexpr std::uint32_t few = 4, vector_places = 2;
  template <class Word, std::uint32_t batch, std::uint32_t places, class B, class Source, class Destination>
  CROSSLANE_DEVICE static void words(const B& block, std::uint64_t lane, Slice slice, std::uint32_t sources,
                                     Source source, std::uint32_t destinations, Destination destination,
                                     std::uint32_t turn) {
    const std::uint64_t step = block.size() * sizeof(Word);
    CROSSLANE_ROLLED
    for (std::uint64_t at = slice.begin + lane * sizeof(Word); at < slice.end; at += places * step) {
      Word result[places] = {};
      CROSSLANE_ROLLED
      for (std::uint32_t first = 0; first < sources; first += batch) {
        Word word[batch][places] = {};
        CROSSLANE_UNROLLED
        for (std::uint32_t s = 0; s < batch; ++s) {
          if (first + s >= sources) break;
          CROSSLANE_UNROLLED
          for (std::uint32_t k = 0; k < places; ++k) {
            if (at + k * step < slice.end)
              word[s][k] = block.load(reinterpret_cast<const Word*>(source(first + s) + at + k * step));
          }
        }
        CROSSLANE_UNROLLED
        for (std::uint32_t s = 0; s < batch; ++s) {
          if (first + s >= sources) break;
          CROSSLANE_UNROLLED
          for (std::uint32_t k = 0; k < places; ++k)
            result[k] = first + s == 0 ? word[s][k] : one(result[k], word[s][k]);
        }
      }
      std::uint32_t d = turn;
      CROSSLANE_ROLLED
      for (std::uint32_t i = 0; i < destinations; ++i) {
        CROSSLANE_UNROLLED
        for (std::uint32_t k = 0; k < places; ++k) {
          if (at + k * step < slice.end)
            block.store(reinterpret_cast<Word*>(destination(d) + at + k * step), result[k]);
        }
        d = d + 1 == destinations ? 0 : d + 1;
      }
    }
  }

  template <class B, class Source, class Destination>
  CROSSLANE_DEVICE static void bytes(const B& block, Slice slice, std::uint32_t sources, Source source,
                                     std::uint32_t destinations, Destination destination) {
    CROSSLANE_ROLLED
    for (std::uint64_t at = slice.begin + block.rank() * sizeof(T); at < slice.end; at += block.size() * sizeof(T)) {
      T result = load_bytes<T>(block, source(0) + at);
      CROSSLANE_ROLLED
      for (std::uint32_t s = 1; s < sources; ++s) result = Op::apply(result, load_bytes<T>(block, source(s) + at));
      CROSSLANE_ROLLED
      for (std::uint32_t d = 0; d < destinations; ++d) store_bytes(block, destination(d) + at, result);
    }
  }
};

}  // namespace crosslane::kernel
