// Copies on the GPU: contiguous, between a packed stream and a nest of loops (TYPES, section 3.1), and between a packed
// stream and a list of pieces (section 3.2). Pointers are device memory or host memory mapped for the GPU.
// It must not know MPI's datatypes: layout/ describes them as Strided or Piece.
#pragma once

#include "kernel/block.h"
#include "kernel/divider.h"
#include "kernel/strided.h"

#include <cstdint>

namespace crosslane::kernel {

/// Which way the bytes go: gathered into the packed stream, or scattered from it.
enum class Way { gather, scatter };

template <class T>
CROSSLANE_DEVICE T* pointer_at(const void* base, std::uint64_t offset) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(base) + offset);
}
CROSSLANE_DEVICE std::byte* byte_at(const void* base, std::uint64_t offset) {
  return pointer_at<std::byte>(base, offset);
}

namespace detail {

template <class Word, class B>
CROSSLANE_DEVICE void copy_as(const B& block, std::byte* to, const std::byte* from, std::uint64_t bytes,
                              std::uint64_t lane, std::uint64_t lanes) {
  const std::uint64_t ahead = (0 - reinterpret_cast<std::uintptr_t>(to)) & (sizeof(Word) - 1);
  const std::uint64_t head = ahead < bytes ? ahead : bytes;
  const std::uint64_t words = (bytes - head) / sizeof(Word);
  const std::uint64_t tail = head + words * sizeof(Word);
  block.copy(to, from, head, lane, lanes);
  block.copy(pointer_at<Word>(to, head), pointer_at<const Word>(from, head), words, lane, lanes);
  block.copy(to + tail, from + tail, bytes - tail, lane, lanes);
}

// In the widest words to which both ends are aligned alike; this lane's share of them.
template <class B>
CROSSLANE_DEVICE void copy_bytes(const B& block, std::byte* to, const std::byte* from, std::uint64_t bytes,
                                 std::uint64_t lane, std::uint64_t lanes) {
  const std::uintptr_t apart = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if ((apart & 15) == 0) {
    copy_as<Word16>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 7) == 0) {
    copy_as<std::uint64_t>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 3) == 0) {
    copy_as<std::uint32_t>(block, to, from, bytes, lane, lanes);
  } else if ((apart & 1) == 0) {
    copy_as<std::uint16_t>(block, to, from, bytes, lane, lanes);
  } else {
    block.copy(to, from, bytes, lane, lanes);
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
    const std::uint64_t tiles = (p.bytes + tile - 1) / tile;
    for (std::uint64_t i = block.index(); i < tiles; i += block.count()) {
      const std::uint64_t start = i * tile;
      const std::uint64_t length = p.bytes - start < tile ? p.bytes - start : tile;
      detail::copy_bytes(block, byte_at(p.to, start), byte_at(p.from, start), length, block.rank(), block.size());
    }
  }
};

struct StridedParameters {
  void* packed;  ///< receives (or gives) the packed byte `begin` first
  void* base;    ///< what the shape's offset counts from
  std::int64_t offset;
  std::uint64_t begin;  ///< in words, as `end`
  std::uint64_t end;
  std::uint32_t word;  ///< bytes of a word: 16, 8, 4, 2 or 1; divides and aligns everything here
  std::uint32_t dimensions;
  Divider words_per_run;
  Divider count[Strided::limit];
  std::int64_t stride[Strided::limit];
};

/// Words [begin, end) of the packed stream of a nest of loops. A thread a word: neighbours in the stream are neighbours
/// among the threads, so the packed side is always coalesced.
template <Way way>
struct StridedCopy {
  using Parameters = StridedParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    switch (p.word) {
      case 16:
        return run<Word16>(block, p);
      case 8:
        return run<std::uint64_t>(block, p);
      case 4:
        return run<std::uint32_t>(block, p);
      case 2:
        return run<std::uint16_t>(block, p);
      default:
        return run<std::uint8_t>(block, p);
    }
  }

 private:
  template <class Word, class B>
  CROSSLANE_DEVICE void run(const B& block, const Parameters& p) const {
    const bool quick = p.end <= Divider::limit;
    block.for_each_in_grid(p.end - p.begin, [&](std::uint64_t i) {
      const std::uint64_t word = p.begin + i;
      const std::int64_t offset = quick ? offset_of<true>(word, p) : offset_of<false>(word, p);
      Word* const there = pointer_at<Word>(p.base, static_cast<std::uint64_t>(offset));
      Word* const here = static_cast<Word*>(p.packed) + i;
      if constexpr (way == Way::gather) {
        block.store(here, block.load(there));
      } else {
        block.store(there, block.load(here));
      }
    });
  }

  template <bool quick>
  CROSSLANE_DEVICE static std::uint64_t divide(std::uint64_t number, const Divider& by) {
    if constexpr (quick) {
      return by.quick(static_cast<std::uint32_t>(number));
    } else {
      return by.any(number);
    }
  }

  template <bool quick>
  CROSSLANE_DEVICE static std::int64_t offset_of(std::uint64_t word, const Parameters& p) {
    std::uint64_t row = divide<quick>(word, p.words_per_run);
    std::int64_t offset = p.offset + static_cast<std::int64_t>((word - row * p.words_per_run.divisor) * p.word);
    for (std::uint32_t d = 0; d < p.dimensions; ++d) {
      const std::uint64_t next = d + 1 == p.dimensions ? 0 : divide<quick>(row, p.count[d]);
      offset += static_cast<std::int64_t>(row - next * p.count[d].divisor) * p.stride[d];
      row = next;
    }
    return offset;
  }
};

struct PiecesParameters {
  void* packed;
  void* base;
  const Piece* pieces;  ///< in memory that the GPU reads
  std::uint64_t count;
  std::uint32_t lanes;  ///< threads a piece: a power of two, at most 32
};

/// A list of pieces. Groups of a few threads take one piece each: wide for long pieces, one thread for tiny ones, so
/// that neither leaves threads idle.
template <Way way>
struct PiecesCopy {
  using Parameters = PiecesParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    block.for_each_group(p.count, p.lanes, [&](std::uint64_t i, std::uint64_t lane, std::uint64_t lanes) {
      const Piece piece = block.load(p.pieces + i);
      std::byte* const here = byte_at(p.packed, piece.packed);
      std::byte* const there = byte_at(p.base, static_cast<std::uint64_t>(piece.offset));
      if constexpr (way == Way::gather) {
        detail::copy_bytes(block, here, there, piece.length, lane, lanes);
      } else {
        detail::copy_bytes(block, there, here, piece.length, lane, lanes);
      }
    });
  }
};

}  // namespace crosslane::kernel
