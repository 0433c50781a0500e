// Carry: payloads of contiguous bytes from memory that this GPU reaches to its own, by a kernel that may stay for the next ones (lingering.h): a team
// of one, whose call is over when the words of who waits for them say so. It must not know messages.
#pragma once

#include "kernel/copy.h"
#include "kernel/ending.h"
#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

struct CarryParameters {
  static constexpr std::uint32_t most = 16;  ///< payloads of a call
  struct Payload {
    std::uint64_t from, to, bytes;
    Ending ending;
  };
  Frame frame;  ///< Of one member. `done`, which is the first payload's, differs from call to call.
  std::uint64_t from, to, bytes;
  std::uint64_t others;  ///< So many come with it.
  Payload other[most - 1];
};

struct Carry {
  using Parameters = CarryParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    if (p.others != 0) {
      copy_together(block, p);
      return launch.finish_telling(p.others, [&](std::uint64_t i) {
        const Ending& ending = p.other[i].ending;
        block.post(ending.word, ending.value);
      });
    }
    const Slice slice = slice_of(p.bytes, block.index(), block.count());
    const std::uint64_t from = p.from + slice.begin, to = p.to + slice.begin, bytes = slice.end - slice.begin;
    const std::uint64_t ends = p.from | p.to | p.bytes;
    if (ends % sizeof(Word16) == 0) {
      copy_words<Word16>(block, from, to, bytes);
    } else if (ends % sizeof(std::uint64_t) == 0 && p.bytes <= some_bytes) {
      copy_words<std::uint64_t>(block, from, to, bytes);
    } else {
      // Several words of each thread in flight however short it is.
      spread_bytes(block, from, bytes, 1, [&](std::uint32_t) { return to; }, 0);
    }
    launch.finish();
  }

 private:
  // Of more the two words that are not whole ones of 16 bytes cost nothing.
  static constexpr std::uint64_t some_bytes = 4096;

  // All at the same time: of short ones most of the time is the way there and back.
  template <class B>
  CROSSLANE_DEVICE static void copy_together(const B& block, const Parameters& p) {
    std::uint64_t groups = 1;
    while (groups <= p.others && groups < block.size()) groups *= 2;
    const std::uint64_t lanes = block.size() / groups, lane = block.rank() % lanes;
    CROSSLANE_ROLLED
    for (std::uint64_t i = block.rank() / lanes; i <= p.others; i += groups) {
      const std::uint64_t from = i == 0 ? p.from : p.other[i - 1].from, to = i == 0 ? p.to : p.other[i - 1].to;
      const Slice slice = slice_of(i == 0 ? p.bytes : p.other[i - 1].bytes, block.index(), block.count());
      detail::copy_bytes(block, to + slice.begin, from + slice.begin, slice.end - slice.begin, lane, lanes);
    }
  }

  // The same of aligned words of one payload, in few instructions, of which the time of a short payload is made: 256 KiB take 6.1 us instead of 6.4.
  template <class Word, class B>
  CROSSLANE_DEVICE static void copy_words(const B& block, std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    constexpr std::uint64_t places = 4;
    const std::uint64_t step = block.size() * sizeof(Word);
    CROSSLANE_ROLLED
    for (std::uint64_t at = block.rank() * sizeof(Word); at < bytes; at += places * step) {
      Word word[places] = {};
      CROSSLANE_UNROLLED
      for (std::uint64_t k = 0; k < places; ++k)
        if (at + k * step < bytes) word[k] = block.load(reinterpret_cast<const Word*>(from + at + k * step));
      CROSSLANE_UNROLLED
      for (std::uint64_t k = 0; k < places; ++k)
        if (at + k * step < bytes) block.store(reinterpret_cast<Word*>(to + at + k * step), word[k]);
    }
  }
};

}  // namespace crosslane::kernel
