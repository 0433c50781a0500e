// Several copies by one launch, each contiguous or between two nests of the same loops.
// It must not know who waits for them.
#pragma once

#include "kernel/block.h"
#include "kernel/copy.h"
#include "kernel/divider.h"
#include "kernel/ending.h"

#include <cstdint>

namespace crosslane::kernel {

struct TogetherParameters {
  static constexpr std::uint32_t limit = 32, loops = 3;

  /// Without loops, `items` bytes from one address to another. Else so many words, counted along the packed stream: the words of a run, one
  /// behind the other, in a nest of loops whose strides are each side's own; loop 0 is the innermost.
  struct Part {
    std::uint64_t to, from;
    std::uint64_t items;
    std::int64_t to_stride[loops], from_stride[loops];
    /// Dividers (divider.h) of the words of a run, and of the rounds of each loop but the outermost.
    std::uint32_t divisor[loops], multiplier[loops];
    std::uint8_t shift[loops];
    std::uint8_t loops_used;
    std::uint8_t word;  ///< bytes: divides and aligns everything here
  };
  std::uint64_t* counter;  ///< of endings
  std::uint32_t parts, endings;
  Part part[limit];
  Ending ending[limit];
};
static_assert(sizeof(TogetherParameters) <= 4096, "what a launch takes");

/// The parts are cut into tiles that blocks take in turns: so short ones run at the same time, and of few the links are busy.
struct TogetherCopy {
  using Parameters = TogetherParameters;
  static constexpr std::uint64_t contiguous_tile = 16 * 1024, batch = 4;

  /// How many tiles blocks of `threads` make of a part.
  CROSSLANE_DEVICE static constexpr std::uint64_t tiles(const Parameters::Part& part, std::uint64_t threads) {
    const std::uint64_t tile = part.loops_used == 0 ? contiguous_tile : threads * batch;
    return (part.items + tile - 1) / tile;
  }

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    std::uint64_t next = block.index();  // counted from the first tile of part `i`
    CROSSLANE_ROLLED
    for (std::uint32_t i = 0; i < p.parts; ++i) {
      const Parameters::Part& part = p.part[i];
      const std::uint64_t mine = tiles(part, block.size());
      for (; next < mine; next += block.count()) {
        if (part.loops_used == 0) {
          const std::uint64_t start = next * contiguous_tile, left = part.items - start;
          detail::copy_bytes(block, part.to + start, part.from + start, left < contiguous_tile ? left : contiguous_tile,
                             block.rank(), block.size());
        } else {
          detail::with_word(part.word, [&]<class Word>(Word) { copy_words<Word>(block, part, next); });
        }
      }
      next -= mine;
    }
    if (p.endings != 0) tell_end(block, p.counter, p.ending, p.endings);
  }

 private:
  template <class Word, class B>
  CROSSLANE_DEVICE static void copy_words(const B& block, const Parameters::Part& part, std::uint64_t tile) {
    const std::uint64_t step = block.size(), first = tile * step * batch + block.rank();
    Word words[batch] = {};
    std::uint64_t to[batch] = {};
    for (std::uint64_t k = 0; k < batch; ++k) {
      const std::uint64_t at = first + k * step;
      if (at >= part.items) continue;
      std::uint64_t from = 0;
      find(part, static_cast<std::uint32_t>(at), sizeof(Word), to[k], from);
      words[k] = block.load(pointer_to<const Word>(from));
    }
    for (std::uint64_t k = 0; k < batch; ++k)
      if (first + k * step < part.items) block.store(pointer_to<Word>(to[k]), words[k]);
  }

  // Where word `word` of the stream lies on either side.
  CROSSLANE_DEVICE static void find(const Parameters::Part& part, std::uint32_t word, std::uint64_t bytes,
                                    std::uint64_t& to, std::uint64_t& from) {
    std::uint32_t row = divide(part, 0, word);
    const std::uint64_t inside = (word - row * part.divisor[0]) * bytes;
    to = part.to + inside;
    from = part.from + inside;
    for (std::uint32_t d = 0; d < part.loops_used; ++d) {
      std::uint32_t index = row;
      if (d + 1 < part.loops_used) {
        row = divide(part, d + 1, index);
        index -= row * part.divisor[d + 1];
      }
      to += index * static_cast<std::uint64_t>(part.to_stride[d]);
      from += index * static_cast<std::uint64_t>(part.from_stride[d]);
    }
  }
  CROSSLANE_DEVICE static std::uint32_t divide(const Parameters::Part& part, std::uint32_t which,
                                               std::uint32_t number) {
    return static_cast<std::uint32_t>(
        Divider{part.divisor[which], part.multiplier[which], part.shift[which]}.quick(number));
  }
};

}  // namespace crosslane::kernel
