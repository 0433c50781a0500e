// A short value that another one takes the place of, if it is what was expected: MPI_Compare_and_swap, and MPI_REPLACE of one element.
// It must not know how others are kept away meanwhile: to the GPU it is no atomic operation.
#pragma once

#include "kernel/block.h"
#include "kernel/copy.h"
#include "kernel/ending.h"

#include <cstdint>

namespace crosslane::kernel {

/// Addresses that the GPU reaches.
struct SwapParameters {
  static constexpr std::uint32_t most_bytes = 16;

  std::uint64_t value;   ///< replaced, where it is equal to `wanted`
  std::uint64_t next;    ///< what it becomes
  std::uint64_t wanted;  ///< 0: anything
  std::uint64_t before;  ///< where what it was goes
  std::uint32_t bytes;   ///< of each, most_bytes at most
  std::uint32_t word;    ///< bytes: divides and aligns all of that, 8 at most
  Ending ending;         ///< none without a word
  std::uint64_t* counter;
};

/// By one thread of one block: all is read before anything is written.
struct Swap {
  using Parameters = SwapParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    if (block.rank() == 0) {
      switch (p.word) {
        case 8:
          swap<std::uint64_t>(block, p);
          break;
        case 4:
          swap<std::uint32_t>(block, p);
          break;
        default:
          swap<std::uint8_t>(block, p);
      }
    }
    if (p.ending.word != nullptr) tell_end(block, p.counter, &p.ending, 1);
  }

 private:
  template <class Word, class B>
  CROSSLANE_DEVICE static void swap(const B& block, const Parameters& p) {
    constexpr std::uint32_t most = Parameters::most_bytes / sizeof(Word);
    const std::uint32_t words = p.bytes / sizeof(Word);
    Word was[most] = {}, next[most] = {}, wanted[most] = {};
    CROSSLANE_UNROLLED
    for (std::uint32_t k = 0; k < most; ++k) {
      if (k >= words) continue;
      was[k] = block.load(pointer_to<const Word>(p.value) + k);
      next[k] = block.load(pointer_to<const Word>(p.next) + k);
      if (p.wanted != 0) wanted[k] = block.load(pointer_to<const Word>(p.wanted) + k);
    }
    bool equal = true;
    CROSSLANE_UNROLLED
    for (std::uint32_t k = 0; k < most; ++k) equal = equal && (p.wanted == 0 || was[k] == wanted[k]);
    CROSSLANE_UNROLLED
    for (std::uint32_t k = 0; k < most; ++k) {
      if (k >= words) continue;
      block.store(pointer_to<Word>(p.before) + k, was[k]);
      if (equal) block.store(pointer_to<Word>(p.value) + k, next[k]);
    }
  }
};

}  // namespace crosslane::kernel
