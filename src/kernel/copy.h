// Copies on the GPU: contiguous; word by word between any two of packed streams, nests of loops and tables of equal runs
// (TYPES, section 3.1); tile by tile where one side runs across the other; and unit by unit along a list of unequal
// runs (section 3.2). Addresses are device memory, a peer's or host memory mapped for the GPU.
// It must not know MPI's datatypes: lane/mover describes them as what stands here.
#pragma once

#include "kernel/block.h"
#include "kernel/divider.h"
#include "kernel/strided.h"

#include <cstdint>

namespace crosslane::kernel {

template <class T>
CROSSLANE_DEVICE T* pointer_to(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

namespace detail {

// Stored in words to which the destination is aligned behind its first few bytes; loaded in those of `From`. Of the few bytes that the words
// leave over at either end each lane's first one is loaded before its words and stored behind them, so that it costs no wait of its own.
template <class Word, class From, class B>
CROSSLANE_DEVICE void copy_as(const B& block, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                              std::uint64_t lane, std::uint64_t lanes) {
  const std::uint64_t ahead = (0 - to) & (sizeof(Word) - 1);
  const std::uint64_t head = ahead < bytes ? ahead : bytes;
  const std::uint64_t words = (bytes - head) / sizeof(Word);
  const std::uint64_t left_over = bytes - words * sizeof(Word);
  const auto place = [&](std::uint64_t i) { return i < head ? i : i + words * sizeof(Word); };
  const auto load = [&](std::uint64_t i) { return block.load(pointer_to<const std::byte>(from + place(i))); };
  const auto store = [&](std::uint64_t i, std::byte value) {
    block.store(pointer_to<std::byte>(to + place(i)), value);
  };
  const std::byte first = lane < left_over ? load(lane) : std::byte{};
  if constexpr (sizeof(Word) == sizeof(From)) {
    block.copy(pointer_to<Word>(to + head), pointer_to<const Word>(from + head), words, lane, lanes);
  } else {
    block.copy_pairs(pointer_to<Word>(to + head), pointer_to<const From>(from + head), words, lane, lanes);
  }
  if (lane < left_over) store(lane, first);
  for (std::uint64_t i = lane + lanes; i < left_over; i += lanes) store(i, load(i));
}

// In the widest words to which both ends are aligned alike, but stores of 16 bytes from 8 on; this lane's share of them.
template <class B>
CROSSLANE_DEVICE void copy_bytes(const B& block, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                                 std::uint64_t lane, std::uint64_t lanes) {
  const std::uint64_t apart = to ^ from;
  if ((apart & 15) == 0) {
    copy_as<Word16, Word16>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 7) == 0) {
    copy_as<Word16, std::uint64_t>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 3) == 0) {
    copy_as<std::uint32_t, std::uint32_t>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 1) == 0) {
    copy_as<std::uint16_t, std::uint16_t>(block, to, from, bytes, lane, lanes);
  } else {
    block.copy(pointer_to<std::byte>(to), pointer_to<const std::byte>(from), bytes, lane, lanes);
  }
}

template <bool quick>
CROSSLANE_DEVICE std::uint64_t divide(std::uint64_t number, const Divider& by) {
  if constexpr (quick) {
    return by.quick(static_cast<std::uint32_t>(number));
  } else {
    return by.any(number);
  }
}

// f(word) with the type of words of so many bytes.
template <class F>
CROSSLANE_DEVICE void with_word(std::uint32_t bytes, F f) {
  switch (bytes) {
    case 16:
      return f(Word16{});
    case 8:
      return f(std::uint64_t{});
    case 4:
      return f(std::uint32_t{});
    case 2:
      return f(std::uint16_t{});
    default:
      return f(std::uint8_t{});
  }
}

}  // namespace detail

struct CopyParameters {
  void* to;
  const void* from;
  std::uint64_t bytes;
};

/// Contiguous bytes; the two ranges must not overlap.
struct Copy {
  using Parameters = CopyParameters;
  static constexpr std::uint64_t tile = 64 * 1024;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const auto to = reinterpret_cast<std::uintptr_t>(p.to), from = reinterpret_cast<std::uintptr_t>(p.from);
    const std::uint64_t tiles = (p.bytes + tile - 1) / tile;
    for (std::uint64_t i = block.index(); i < tiles; i += block.count()) {
      const std::uint64_t start = i * tile;
      const std::uint64_t length = p.bytes - start < tile ? p.bytes - start : tile;
      detail::copy_bytes(block, to + start, from + start, length, block.rank(), block.size());
    }
  }
};

/// Where the words of a packed stream lie: runs in a nest of loops, the innermost of which may be a table.
struct WordsSide {
  std::uint64_t address;  ///< of the first run of the nest; of the stream's byte 0 where there is no loop
  const void* table;      ///< displacements in place of stride[0]; may be null
  std::uint32_t shift;    ///< of the table
  bool wide;              ///< the table
  std::uint32_t dimensions;
  Divider words_per_run;
  Divider count[Strided::limit];
  std::int64_t stride[Strided::limit];

  /// The address of word `word` of the stream, in words of `bytes`.
  template <bool quick, class B>
  CROSSLANE_DEVICE std::uint64_t place(const B& block, std::uint64_t word, std::uint64_t bytes) const {
    if (dimensions == 0) return address + word * bytes;
    std::uint64_t row = detail::divide<quick>(word, words_per_run);
    std::uint64_t at = address + (word - row * words_per_run.divisor) * bytes;
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const std::uint64_t next = d + 1 == dimensions ? 0 : detail::divide<quick>(row, count[d]);
      const std::uint64_t index = row - next * count[d].divisor;
      if (d == 0 && table != nullptr) {
        at += (wide ? block.load(static_cast<const std::uint64_t*>(table) + index)
                    : std::uint64_t{block.load(static_cast<const std::uint32_t*>(table) + index)})
              << shift;
      } else {
        at += index * static_cast<std::uint64_t>(stride[d]);
      }
      row = next;
    }
    return at;
  }
};

struct WordsParameters {
  WordsSide to, from;
  std::uint64_t begin;  ///< in words, as `end`
  std::uint64_t end;
  std::uint32_t word;  ///< bytes of a word: 16, 8, 4, 2 or 1; divides and aligns everything here
};

/// Words [begin, end) of a packed stream from where one side has them to where the other wants them. A thread takes
/// words that are a block's width apart: neighbours in the stream are neighbours among the threads, so a side that is
/// dense in the stream's order is coalesced, and several loads are in flight.
struct WordsCopy {
  using Parameters = WordsParameters;
  static constexpr std::uint64_t batch = 4;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const bool quick = p.end <= Divider::limit;
    detail::with_word(p.word, [&]<class Word>(Word) {
      if (quick) {
        run<Word, true>(block, p);
      } else {
        run<Word, false>(block, p);
      }
    });
  }

 private:
  template <class Word, bool quick, class B>
  CROSSLANE_DEVICE static void run(const B& block, const Parameters& p) {
    const std::uint64_t step = block.size(), tile = step * batch;
    for (std::uint64_t start = p.begin + block.index() * tile; start < p.end; start += block.count() * tile) {
      const std::uint64_t first = start + block.rank();
      Word words[batch] = {};
      for (std::uint64_t k = 0; k < batch; ++k) {
        const std::uint64_t at = first + k * step;
        if (at < p.end)
          words[k] = block.load(pointer_to<const Word>(p.from.template place<quick>(block, at, sizeof(Word))));
      }
      for (std::uint64_t k = 0; k < batch; ++k) {
        const std::uint64_t at = first + k * step;
        if (at < p.end) block.store(pointer_to<Word>(p.to.template place<quick>(block, at, sizeof(Word))), words[k]);
      }
    }
  }
};

struct TilesParameters {
  static constexpr std::uint32_t limit = 2 * Strided::limit + 1;
  struct Dimension {
    std::int64_t to, from;  ///< strides, bytes
  };
  std::uint64_t to, from;  ///< addresses of the first word
  std::uint32_t word;      ///< bytes; every address and stride is a multiple
  std::uint32_t dimensions;
  std::uint64_t count_x, count_y;  ///< x: the dimension along which `from` is densest; y: along which `to` is
  Dimension x, y;
  Divider tiles_x, tiles_y;  ///< of a plane
  std::uint64_t tiles;       ///< of all planes; below Divider::limit
  Divider count[limit];      ///< planes in each further dimension
  Dimension stride[limit];
};

/// Words of two nests of the same loops where what lies close together on one side lies far apart on the other: a
/// transposition. A tile is read along the one, turned in the block's memory and written along the other.
struct TilesCopy {
  using Parameters = TilesParameters;
  /// Words of a tile's edge.
  CROSSLANE_DEVICE static constexpr std::uint64_t edge(std::uint64_t word_bytes) { return word_bytes >= 4 ? 32 : 64; }
  CROSSLANE_DEVICE static constexpr std::uint64_t shared_bytes(std::uint64_t word_bytes) {
    return edge(word_bytes) * (edge(word_bytes) + 1) * word_bytes;
  }

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    detail::with_word(p.word, [&]<class Word>(Word) { run<Word>(block, p); });
  }

 private:
  static constexpr std::uint64_t batch = 4;

  template <class Word, class B>
  CROSSLANE_DEVICE static void run(const B& block, const Parameters& p) {
    constexpr std::uint64_t side = edge(sizeof(Word)), pitch = side + 1;  // off by one: no bank is asked twice
    Word* const turned = block.template shared<Word>();
    for (std::uint64_t tile = block.index(); tile < p.tiles; tile += block.count()) {
      std::uint64_t row = detail::divide<true>(tile, p.tiles_x);
      const std::uint64_t x = (tile - row * p.tiles_x.divisor) * side;
      std::uint64_t plane = detail::divide<true>(row, p.tiles_y);
      const std::uint64_t y = (row - plane * p.tiles_y.divisor) * side;
      std::uint64_t to = p.to + x * static_cast<std::uint64_t>(p.x.to) + y * static_cast<std::uint64_t>(p.y.to);
      std::uint64_t from = p.from + x * static_cast<std::uint64_t>(p.x.from) + y * static_cast<std::uint64_t>(p.y.from);
      for (std::uint32_t d = 0; d < p.dimensions; ++d) {
        const std::uint64_t next = d + 1 == p.dimensions ? 0 : detail::divide<true>(plane, p.count[d]);
        const std::uint64_t index = plane - next * p.count[d].divisor;
        to += index * static_cast<std::uint64_t>(p.stride[d].to);
        from += index * static_cast<std::uint64_t>(p.stride[d].from);
        plane = next;
      }
      const std::uint64_t wide = p.count_x - x < side ? p.count_x - x : side;
      const std::uint64_t high = p.count_y - y < side ? p.count_y - y : side;
      for (std::uint64_t first = block.rank(); first < side * side; first += batch * block.size()) {
        Word words[batch] = {};
        for (std::uint64_t k = 0; k < batch; ++k) {
          const std::uint64_t i = first + k * block.size(), across = i % side, down = i / side;
          if (across < wide && down < high) {
            words[k] = block.load(pointer_to<const Word>(from + across * static_cast<std::uint64_t>(p.x.from) +
                                                         down * static_cast<std::uint64_t>(p.y.from)));
          }
        }
        for (std::uint64_t k = 0; k < batch; ++k) {
          const std::uint64_t i = first + k * block.size(), across = i % side, down = i / side;
          if (across < wide && down < high) turned[down * pitch + across] = words[k];
        }
      }
      block.barrier();  // the tile is there
      for (std::uint64_t i = block.rank(); i < side * side; i += block.size()) {
        const std::uint64_t down = i % side, across = i / side;
        if (across < wide && down < high) {
          block.store(pointer_to<Word>(to + across * static_cast<std::uint64_t>(p.x.to) +
                                       down * static_cast<std::uint64_t>(p.y.to)),
                      turned[down * pitch + across]);
        }
      }
      block.barrier();  // and may be overwritten
    }
  }
};

struct UnitsParameters {
  const void* units;  ///< `count` + 1 of them, in memory that the GPU reads
  std::uint64_t to, from;
  bool to_packed, from_packed;  ///< that side is the packed stream: its address is the stream's byte 0
  bool wide;                    ///< 64-bit units
  std::uint32_t shift;          ///< of the units' numbers
  std::uint32_t lanes;          ///< threads a unit: a power of two, at most 32
  std::uint32_t dimensions;     ///< loops around the list
  Divider units_per_list;
  Divider count[Strided::limit];
  std::int64_t stride[Strided::limit];
  std::uint64_t list_bytes;   ///< packed, of one repetition of the list
  std::uint64_t first, last;  ///< units, counted over all repetitions
  std::uint64_t begin, end;   ///< bytes of the packed stream; units are cut to them
};

/// Bytes [begin, end) of the packed stream of a list of runs that loops may repeat, into or out of the stream, or from
/// one place that is laid out so to another. Groups of a few threads take one unit each: wide for long runs, one thread
/// for tiny ones, so that neither leaves threads idle.
struct UnitsCopy {
  using Parameters = UnitsParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const bool quick = p.last <= Divider::limit;
    block.for_each_group(p.last - p.first, p.lanes, [&](std::uint64_t i, std::uint64_t lane, std::uint64_t lanes) {
      const std::uint64_t unit = p.first + i;
      std::uint64_t round = 0;
      if (p.dimensions != 0)
        round = quick ? detail::divide<true>(unit, p.units_per_list) : detail::divide<false>(unit, p.units_per_list);
      const std::uint64_t index = unit - round * p.units_per_list.divisor;
      std::uint64_t offset = 0, packed = 0, stop = 0;
      if (p.wide) {
        read<WideUnit>(block, p, index, offset, packed, stop);
      } else {
        read<Unit>(block, p, index, offset, packed, stop);
      }
      packed += round * p.list_bytes;
      stop += round * p.list_bytes;
      for (std::uint32_t d = 0; d < p.dimensions; ++d) {
        const std::uint64_t next = d + 1 == p.dimensions ? 0
                                   : quick               ? detail::divide<true>(round, p.count[d])
                                                         : detail::divide<false>(round, p.count[d]);
        offset += (round - next * p.count[d].divisor) * static_cast<std::uint64_t>(p.stride[d]);
        round = next;
      }
      if (packed < p.begin) {
        offset += p.begin - packed;
        packed = p.begin;
      }
      if (stop > p.end) stop = p.end;
      if (packed >= stop) return;
      detail::copy_bytes(block, p.to + (p.to_packed ? packed : offset), p.from + (p.from_packed ? packed : offset),
                         stop - packed, lane, lanes);
    });
  }

 private:
  template <class One, class B>
  CROSSLANE_DEVICE static void read(const B& block, const Parameters& p, std::uint64_t index, std::uint64_t& offset,
                                    std::uint64_t& packed, std::uint64_t& stop) {
    const One* const units = static_cast<const One*>(p.units) + index;
    const One mine = block.load(units);
    offset = std::uint64_t{mine.offset} << p.shift;
    packed = std::uint64_t{mine.packed} << p.shift;
    stop = std::uint64_t{block.load(&units[1].packed)} << p.shift;
  }
};

}  // namespace crosslane::kernel
