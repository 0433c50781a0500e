// The reductions and the kernels of teams in one context, ready to launch (copies.h has the copies): choices of grid and
// split that a caller need not know.
// It must not know MPI, nor wait for anything: all is enqueued on the stream it is given.
#pragma once

#include "gpu/module.h"
#include "gpu/stream.h"
#include "kernel/carry.h"
#include "kernel/catalogue.h"
#include "kernel/exchange.h"
#include "kernel/lingering.h"
#include "kernel/load.h"
#include "kernel/low_latency.h"
#include "kernel/low_latency_shares.h"
#include "kernel/pairwise.h"
#include "kernel/pipelined.h"
#include "kernel/pushed.h"
#include "kernel/reduce.h"
#include "kernel/ring.h"

#include <cstddef>
#include <optional>
#include <type_traits>
#include <vector>

namespace crosslane::kernel {

/// A kernel for calls with such parameters that stays for further ones (lingering.h); none where it is null.
template <class Parameters>
struct LingeringKernel {
  const gpu::Function* function = nullptr;

  /// As the launches of Kernels.
  void launch(gpu::StreamView stream, const Parameters& parameters, unsigned blocks, const Stay& stay) const;
};

/// Pointers are device memory of the stream's context (or of peers it can reach), or host memory that is pinned and
/// mapped. Move-only; one a context, made ahead of first use, since loading may wait for running kernels. Thread-safe
/// once made.
class Kernels {
 public:
  /// Loads into the current context. Throws Error (unsupported) where available() is false.
  explicit Kernels(const gpu::Driver& driver);

  /// inout = in op inout, of `parameters.count` elements. Throws Error (op) where MPI does not define the operation for the element.
  void reduce(gpu::StreamView stream, Op op, Element element, const ReduceParameters& parameters) const;

  // Kernels of a team (team.h). All members launch the same kinds in the same order, with the same number of blocks. The
  // blocks of all members that share a GPU must be resident together, at most most_team_blocks each.

  static constexpr unsigned team_threads = 512;  ///< in each block of them
  /// How many blocks of them, of several launches, this context's GPU runs at once.
  [[nodiscard]] unsigned resident_team_blocks() const noexcept { return resident_team_blocks_; }

  /// True if MPI defines the operation for such elements. The combining launches throw Error (op) where it does not.
  [[nodiscard]] static bool combines(Op op, Element element) noexcept;

  void exchange_move(gpu::StreamView stream, const ExchangeMoveParameters& parameters, unsigned blocks) const;
  void exchange_spread(gpu::StreamView stream, const ExchangeSpreadParameters& parameters, unsigned blocks) const;
  void exchange_combine(gpu::StreamView stream, Op op, Element element, const ExchangeCombineParameters& parameters,
                        unsigned blocks) const;
  void low_latency_combine(gpu::StreamView stream, Op op, Element element,
                           const LowLatencyCombineParameters& parameters, unsigned blocks) const;
  // On a wire, Packets or Lines (wire.h): `low_latency` and `slot_bytes` are of its areas.
  // `Parameters`: LowLatencyMoveParameters or LowLatencyEvenParameters.
  template <class Wire, class Parameters>
  void low_latency_move(gpu::StreamView stream, const Parameters& parameters, unsigned blocks) const;
  /// For middling arrays, in packets; only where pipelines(op, element), throws Error (op) else.
  void low_latency_shares(gpu::StreamView stream, Op op, Element element, const LowLatencySharesParameters& parameters,
                          unsigned blocks) const;
  /// For large arrays; only where pipelines(op, element), throws Error (op) else. Windows hold
  /// pipelined_window_bytes(blocks, members, chunk_bytes).
  void pipelined_reduction(gpu::StreamView stream, Op op, Element element,
                           const PipelinedReductionParameters& parameters, unsigned blocks) const;
  [[nodiscard]] static bool pipelines(Op op, Element element) noexcept;
  // Along a ring of at least three members; `complete` is 0 for the first, and for the second op and element as above. Windows hold
  // ring_window_bytes(blocks, places, chunk_bytes).
  void ring_move(gpu::StreamView stream, const RingParameters& parameters, unsigned blocks) const;
  void ring_reduction(gpu::StreamView stream, Op op, Element element, const RingParameters& parameters,
                      unsigned blocks) const;
  /// Of reductions: LowLatencyCombineParameters, LowLatencySharesParameters, ExchangeCombineParameters; only where pipelines(op, element).
  template <class Parameters>
  [[nodiscard]] LingeringKernel<Parameters> lingering(Op op, Element element) const noexcept;
  template <class Wire, class Parameters>
  [[nodiscard]] LingeringKernel<Parameters> lingering_low_latency_move() const noexcept {
    constexpr bool in_lines = std::is_same_v<Wire, Lines>;
    if constexpr (std::is_same_v<Parameters, LowLatencyEvenParameters>)
      return {in_lines ? &lingering_even_lines_ : &lingering_even_packets_};
    else
      return {in_lines ? &lingering_lines_ : &lingering_packets_};
  }
  [[nodiscard]] LingeringKernel<ExchangeMoveParameters> lingering_move() const noexcept { return {&lingering_move_}; }
  [[nodiscard]] LingeringKernel<ExchangeSpreadParameters> lingering_spread() const noexcept {
    return {&lingering_spread_};
  }
  [[nodiscard]] LingeringKernel<CarryParameters> lingering_carry() const noexcept { return {&lingering_carry_}; }
  /// Windows hold pairwise_window_bytes(blocks, members, chunk_bytes) for each parity.
  void pairwise_move(gpu::StreamView stream, const PairwiseMoveParameters& parameters, unsigned blocks) const;
  /// Windows hold pushed_window_bytes(blocks, members, places, chunk_bytes).
  void pushed_move(gpu::StreamView stream, const PushedMoveParameters& parameters, unsigned blocks) const;

 private:
  using Combining = std::vector<std::optional<gpu::Function>>;  // by row of combinations()
  gpu::Module local_, exchange_, low_latency_, pipelined_, pairwise_, lines_, ring_,
      lingering_;  // of all families but the copies
  gpu::Function exchange_move_, exchange_spread_, pairwise_move_, pushed_move_, ring_move_, packets_move_, lines_move_,
      packets_even_, lines_even_;
  Combining reduce_, exchange_combine_, low_latency_combine_, pipelined_reduction_, ring_reduction_, shares_;
  gpu::Function lingering_packets_, lingering_lines_, lingering_even_packets_, lingering_even_lines_, lingering_move_,
      lingering_spread_, lingering_carry_;
  Combining lingering_combine_, lingering_shares_, lingering_exchange_;
  unsigned resident_team_blocks_;
};

}  // namespace crosslane::kernel
