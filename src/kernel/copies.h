// The copy kernels of one context, ready to launch: choices of word, tile and grid that a caller need not know.
// It must not know MPI's datatypes, nor wait for anything: all is enqueued on the stream it is given.
#pragma once

#include "gpu/module.h"
#include "gpu/stream.h"
#include "kernel/copy.h"
#include "kernel/load.h"
#include "kernel/push.h"
#include "kernel/strided.h"
#include "kernel/swap.h"
#include "kernel/together.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::kernel {

/// Where a packed stream's bytes lie: a nest of loops at a base. With a table, dimension 0 takes its displacements from
/// there. Without dimensions it is the stream itself.
struct Laid {
  void* base = nullptr;
  Strided shape;
  Table table;

  /// The stream itself, of which `address` holds byte `begin`.
  [[nodiscard]] static Laid packed(void* address, std::size_t begin) noexcept {
    return {reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) - begin), {}, {}};
  }
};

/// Units (strided.h) in memory that the GPU reads, and the loops that repeat them: shape.offset is where the list's
/// displacements count from, its dimensions are those loops, its width is of no meaning.
struct UnitList {
  const void* units = nullptr;
  std::uint64_t count = 0;  ///< of one repetition
  std::uint64_t bytes = 0;  ///< packed, of one repetition
  std::uint32_t shift = 0;
  bool wide = false;
  Strided loops;
};

/// One side of a copy along a list: the packed stream, of which `address` holds byte `begin`, or memory laid out as the list says.
struct UnitSide {
  void* address;
  bool packed;
};

/// One of several copies that are enqueued together.
using Part = TogetherParameters::Part;

/// The first `bytes` of a packed stream, at least one. Nothing for what is better copied by itself: without loops that are the same on both
/// sides, with more of them than a part has or than 31 bits count, or a transposition.
[[nodiscard]] std::optional<Part> part_of(const Laid& to, const Laid& from, std::size_t bytes) noexcept;

/// Pointers are device memory of the stream's context or of peers that it can reach, or host memory that is pinned and
/// mapped. Move-only; one a context, made ahead of first use, since loading may wait for running kernels. Thread-safe
/// once made. What a launch reads must stay until the stream is past it; what it writes must not overlap.
class Copies {
 public:
  /// Loads into the current context. Throws Error (unsupported) where available() is false. `blocks`: the most thread
  /// blocks of a launch; 0 for as many as keep this GPU's memory busy (TYPES, section 5.3).
  explicit Copies(const gpu::Driver& driver, unsigned blocks = 0);

  /// Contiguous bytes.
  void contiguous(gpu::StreamView stream, void* to, const void* from, std::size_t bytes) const;

  /// Bytes [begin, end) of the packed stream from where one side has them to where the other wants them. Fast where
  /// widths, strides and ends are multiples of 4, 8 or 16 bytes. Turned tile by tile where one side runs across the
  /// other.
  void laid(gpu::StreamView stream, const Laid& to, const Laid& from, std::size_t begin, std::size_t end) const;

  /// The same along a list. All that lies in [begin, end) is among the units [first, last), counted over all
  /// repetitions.
  void along(gpu::StreamView stream, const UnitList& list, UnitSide to, UnitSide from, std::size_t begin,
             std::size_t end, std::uint64_t first, std::uint64_t last) const;

  /// Several copies at once, which must not overlap; and what becomes of words, behind all of them, in memory that is mapped for the GPU or its
  /// own. `counter`: a word of the GPU's for this stream alone, which begins as 0.
  void together(gpu::StreamView stream, std::span<const Part> parts, std::span<const Ending> endings,
                std::uint64_t* counter) const;

  /// Contiguous bytes, at least one, by at most so many blocks of threads, and what becomes of a word behind them; unless it is called off before it
  /// begins. `control`: of this stream alone, zero at first.
  void push(gpu::StreamView stream, void* to, const void* from, std::size_t bytes, const Revocation& revocation,
            const Ending& ending, PushControl* control, unsigned most_blocks) const;

  /// `parameters.word` is found here.
  void swap(gpu::StreamView stream, SwapParameters parameters) const;

  [[nodiscard]] unsigned most_blocks() const noexcept { return most_blocks_; }

 private:
  [[nodiscard]] gpu::Grid grid(std::uint64_t items, std::uint64_t items_a_block, unsigned most = ~0U) const noexcept;
  void words(gpu::StreamView stream, const Laid& to, const Laid& from, std::size_t begin, std::size_t end) const;

  gpu::Module module_;
  gpu::Function contiguous_, words_, tiles_, units_, together_, push_, swap_;
  unsigned most_blocks_;
};

/// The words in which [begin, end) can be moved: the largest power of two up to 16 that divides and aligns everything.
[[nodiscard]] std::uint32_t word_for(const Laid& to, const Laid& from, std::size_t begin, std::size_t end) noexcept;

/// A transposition that tiles can do, and which bytes of the packed stream it moves.
struct Tiling {
  TilesParameters parameters;
  std::size_t begin, end;
};
/// Nothing where one side does not run across the other, or too little of it, or their loops do not fit each other.
[[nodiscard]] std::optional<Tiling> tiling(const Laid& to, const Laid& from, std::size_t begin,
                                           std::size_t end) noexcept;

}  // namespace crosslane::kernel
