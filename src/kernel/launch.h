// The kernels of one context, ready to launch: choices of word, grid and split that a caller need not know.
// It must not know MPI, nor wait for anything: all is enqueued on the stream it is given.
#pragma once

#include "gpu/module.h"
#include "gpu/stream.h"
#include "kernel/catalogue.h"
#include "kernel/copy.h"
#include "kernel/exchange.h"
#include "kernel/low_latency.h"
#include "kernel/pairwise.h"
#include "kernel/pipelined.h"
#include "kernel/reduce.h"
#include "kernel/strided.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace crosslane::kernel {

/// True if this driver can be given the kernels: always under emulation, and on GPUs where a GPU compiler was there
/// when the library was built. Without them, copies (gpu/copy.h) are all there is.
[[nodiscard]] bool available(const gpu::Driver& driver) noexcept;

/// Pointers are device memory of the stream's context (or of peers it can reach), or host memory that is pinned and
/// mapped. Move-only; one a context, made ahead of first use, since loading may wait for running kernels. Thread-safe
/// once made.
class Kernels {
 public:
  /// Loads into the current context. Throws Error (unsupported) where available() is false.
  explicit Kernels(const gpu::Driver& driver);

  /// Contiguous bytes; ranges must not overlap.
  void copy(gpu::StreamView stream, void* to, const void* from, std::size_t bytes) const;

  /// The packed bytes [begin, end) of `shape` at `base`, to or from `packed`, which holds byte `begin` first. Fast
  /// where width, strides and range are multiples of 4, 8 or 16 bytes and the ends are aligned to that.
  void strided(gpu::StreamView stream, Way way, void* packed, void* base, const Strided& shape, std::size_t begin,
               std::size_t end) const;

  /// A list of pieces. `list` is for the GPU to read, and stays as it is until the stream is past the launch; `bytes`
  /// is the sum of the lengths (it only chooses the grid). Pieces that are scattered must not overlap.
  void pieces(gpu::StreamView stream, Way way, void* packed, void* base, const Piece* list, std::size_t count,
              std::size_t bytes) const;

  /// inout = in op inout. Throws Error (op) where MPI does not define the operation for the element.
  void reduce(gpu::StreamView stream, Op op, Element element, void* inout, const void* in, std::size_t count) const;

  // Kernels of a team (team.h). All members launch the same kinds in the same order, with the same number of blocks. The
  // blocks of all members that share a GPU must be resident together: see team_blocks().

  static constexpr unsigned team_threads = 512;  ///< in each block of them
  /// How many blocks of them this context's GPU runs at once, at most most_team_blocks.
  [[nodiscard]] unsigned team_blocks() const noexcept { return team_blocks_; }
  /// How many of them, of several launches, this context's GPU runs at once.
  [[nodiscard]] unsigned resident_team_blocks() const noexcept { return resident_team_blocks_; }

  /// True if MPI defines the operation for such elements. The combining launches throw Error (op) where it does not.
  [[nodiscard]] static bool combines(Op op, Element element) noexcept;

  void exchange_move(gpu::StreamView stream, const ExchangeMoveParameters& parameters, unsigned blocks) const;
  void exchange_combine(gpu::StreamView stream, Op op, Element element, const ExchangeCombineParameters& parameters,
                        unsigned blocks) const;
  void low_latency_move(gpu::StreamView stream, const LowLatencyMoveParameters& parameters, unsigned blocks) const;
  void low_latency_combine(gpu::StreamView stream, Op op, Element element,
                           const LowLatencyCombineParameters& parameters, unsigned blocks) const;
  /// For large arrays; only where pipelines(op, element), throws Error (op) else. Windows hold
  /// pipelined_window_bytes(blocks, members, chunk_bytes).
  void pipelined_reduction(gpu::StreamView stream, Op op, Element element,
                           const PipelinedReductionParameters& parameters, unsigned blocks) const;
  [[nodiscard]] static bool pipelines(Op op, Element element) noexcept;
  /// Windows hold pairwise_window_bytes(blocks, members, chunk_bytes) for each parity.
  void pairwise_move(gpu::StreamView stream, const PairwiseMoveParameters& parameters, unsigned blocks) const;

 private:
  gpu::Module modules_[family_count];
  gpu::Function copy_;
  gpu::Function strided_[2];  // by Way
  gpu::Function pieces_[2];
  gpu::Function exchange_move_, low_latency_move_, pairwise_move_;
  std::vector<std::optional<gpu::Function>> combining_[family_count];  // by row of combinations()
  unsigned team_blocks_, resident_team_blocks_;
};

/// The words in which a shape's bytes can be moved: the largest power of two up to 16 that divides everything.
[[nodiscard]] std::uint32_t word_for(const void* packed, const void* base, const Strided& shape, std::size_t begin,
                                     std::size_t end) noexcept;

}  // namespace crosslane::kernel
