// See launch.h.
#include "kernel/launch.h"

#include "base/error.h"
#include "gpu/context.h"
#include "kernel/load.h"

#include <algorithm>
#include <string>
#include <type_traits>

namespace crosslane::kernel {
namespace {

constexpr unsigned threads = 256;  // as the kernels' launch bounds
// A multiprocessor holds so many blocks of a team's kernel, and maybe more: their launch bounds.
constexpr unsigned blocks_a_processor = 2;
// Several blocks for each multiprocessor of the largest GPUs; blocks loop over what is more.
constexpr std::uint64_t most_blocks = 2048;

gpu::Grid blocks_for(std::uint64_t items, std::uint64_t items_a_block) {
  return {
      static_cast<unsigned>(std::clamp<std::uint64_t>((items + items_a_block - 1) / items_a_block, 1, most_blocks))};
}

std::vector<std::optional<gpu::Function>> combining(const gpu::Module& module, const std::string& prefix,
                                                    bool (*has)(const Combination&)) {
  std::vector<std::optional<gpu::Function>> functions;
  for (const Combination& row : combinations())
    functions.push_back(has(row) ? std::optional(loaded(module, (prefix + row.name).c_str())) : std::nullopt);
  return functions;
}
bool every(const Combination& /*row*/) { return true; }
bool large(const Combination& row) { return pipelined(row); }

Combined combined(Op op, Element element) {
  const auto found = combination(op, element);
  if (!found) {
    throw base::Error(base::ErrorClass::op, "MPI does not define this operation for elements of this kind");
  }
  return *found;
}

std::size_t pipelined_row(Op op, Element element) {
  if (!Kernels::pipelines(op, element))
    throw base::Error(base::ErrorClass::op,
                      "no kernel in shares for this operation and element; ask pipelines() first");
  return combined(op, element).row;
}

template <class Parameters>
void launch(const gpu::Function& function, gpu::StreamView stream, gpu::Grid blocks, const Parameters& parameters) {
  function.launch(stream, blocks, {threads}, 0, parameters);
}

void check_team(const Frame& frame, unsigned blocks) {
  if (blocks == 0 || blocks > most_team_blocks || frame.members > most_members || frame.me >= frame.members) {
    throw base::Error(base::ErrorClass::intern, "a team's kernel with {} blocks for member {} of {}", blocks, frame.me,
                      frame.members);
  }
}

template <class Parameters>
void launch_team(const gpu::Function& function, gpu::StreamView stream, unsigned blocks, const Parameters& parameters) {
  check_team(parameters.frame, blocks);
  function.launch(stream, {blocks}, {Kernels::team_threads}, 0, parameters);
}

void check_ring(const RingParameters& parameters) {
  if (parameters.frame.members < 3 || parameters.round == 0 || parameters.places <= parameters.round) {
    throw base::Error(base::ErrorClass::intern, "a ring of {} members, with {} places for rounds of {} chunks",
                      parameters.frame.members, parameters.places, parameters.round);
  }
}

}  // namespace

Kernels::Kernels(const gpu::Driver& driver)
    : local_(load(driver, Family::local)),
      exchange_(load(driver, Family::exchange)),
      low_latency_(load(driver, Family::low_latency)),
      pipelined_(load(driver, Family::pipelined)),
      pairwise_(load(driver, Family::pairwise)),
      lines_(load(driver, Family::lines)),
      ring_(load(driver, Family::ring)),
      lingering_(load(driver, Family::lingering)),
      exchange_move_(loaded(exchange_, "crosslane_exchange_move")),
      exchange_spread_(loaded(exchange_, "crosslane_exchange_spread")),
      pairwise_move_(loaded(pairwise_, "crosslane_pairwise_move")),
      pushed_move_(loaded(pairwise_, "crosslane_pushed_move")),
      ring_move_(loaded(ring_, "crosslane_ring_move")),
      packets_move_(loaded(low_latency_, "crosslane_low_latency_move")),
      lines_move_(loaded(lines_, "crosslane_lines_move")),
      packets_even_(loaded(low_latency_, "crosslane_low_latency_even")),
      lines_even_(loaded(lines_, "crosslane_lines_even")),
      reduce_(combining(local_, "crosslane_local_", every)),
      exchange_combine_(combining(exchange_, "crosslane_exchange_", every)),
      low_latency_combine_(combining(low_latency_, "crosslane_low_latency_", every)),
      pipelined_reduction_(combining(pipelined_, "crosslane_pipelined_", large)),
      ring_reduction_(combining(ring_, "crosslane_ring_", large)),
      shares_(combining(low_latency_, "crosslane_low_latency_shares_", large)),
      lingering_packets_(loaded(lingering_, "crosslane_lingering_packets")),
      lingering_lines_(loaded(lingering_, "crosslane_lingering_lines")),
      lingering_even_packets_(loaded(lingering_, "crosslane_lingering_even_packets")),
      lingering_even_lines_(loaded(lingering_, "crosslane_lingering_even_lines")),
      lingering_move_(loaded(lingering_, "crosslane_lingering_move")),
      lingering_spread_(loaded(lingering_, "crosslane_lingering_spread")),
      lingering_carry_(loaded(lingering_, "crosslane_lingering_carry")),
      lingering_combine_(combining(lingering_, "crosslane_lingering_combine_", large)),
      lingering_shares_(combining(lingering_, "crosslane_lingering_shares_", large)),
      lingering_exchange_(combining(lingering_, "crosslane_lingering_exchange_", large)) {
  const auto processors = static_cast<unsigned>(
      gpu::device_attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu::current_device(driver)));
  // All of them are compiled for at least as many blocks a multiprocessor as this one: see gpu_entries.h.
  const auto resident = static_cast<unsigned>(exchange_move_.resident_blocks(team_threads, 0));
  resident_team_blocks_ = processors * std::min(resident, blocks_a_processor);
}

void Kernels::reduce(gpu::StreamView stream, Op op, Element element, const ReduceParameters& parameters) const {
  const auto [row, factor] = combined(op, element);
  if (parameters.count == 0) return;
  ReduceParameters scaled = parameters;
  scaled.count *= factor;
  launch(*reduce_[row], stream, blocks_for(parameters.count * bytes_of(element), threads * 16), scaled);
}

void Kernels::exchange_move(gpu::StreamView stream, const ExchangeMoveParameters& parameters, unsigned blocks) const {
  launch_team(exchange_move_, stream, blocks, parameters);
}

void Kernels::exchange_spread(gpu::StreamView stream, const ExchangeSpreadParameters& parameters,
                              unsigned blocks) const {
  launch_team(exchange_spread_, stream, blocks, parameters);
}

void Kernels::exchange_combine(gpu::StreamView stream, Op op, Element element,
                               const ExchangeCombineParameters& parameters, unsigned blocks) const {
  const auto [row, factor] = combined(op, element);
  ExchangeCombineParameters scaled = parameters;
  scaled.count *= factor;
  launch_team(*exchange_combine_[row], stream, blocks, scaled);
}

void Kernels::low_latency_combine(gpu::StreamView stream, Op op, Element element,
                                  const LowLatencyCombineParameters& parameters, unsigned blocks) const {
  const auto [row, factor] = combined(op, element);
  LowLatencyCombineParameters scaled = parameters;
  scaled.count *= factor;
  launch_team(*low_latency_combine_[row], stream, blocks, scaled);
}

template <class Wire, class Parameters>
void Kernels::low_latency_move(gpu::StreamView stream, const Parameters& parameters, unsigned blocks) const {
  constexpr bool in_lines = std::is_same_v<Wire, Lines>;
  if constexpr (std::is_same_v<Parameters, LowLatencyEvenParameters>)
    launch_team(in_lines ? lines_even_ : packets_even_, stream, blocks, parameters);
  else
    launch_team(in_lines ? lines_move_ : packets_move_, stream, blocks, parameters);
}
template void Kernels::low_latency_move<Packets>(gpu::StreamView, const LowLatencyMoveParameters&, unsigned) const;
template void Kernels::low_latency_move<Lines>(gpu::StreamView, const LowLatencyMoveParameters&, unsigned) const;
template void Kernels::low_latency_move<Packets>(gpu::StreamView, const LowLatencyEvenParameters&, unsigned) const;
template void Kernels::low_latency_move<Lines>(gpu::StreamView, const LowLatencyEvenParameters&, unsigned) const;

template <class Parameters>
LingeringKernel<Parameters> Kernels::lingering(Op op, Element element) const noexcept {
  if (!pipelines(op, element)) return {};
  const std::size_t row = combination(op, element)->row;
  if constexpr (std::is_same_v<Parameters, LowLatencyCombineParameters>) return {&*lingering_combine_[row]};
  if constexpr (std::is_same_v<Parameters, LowLatencySharesParameters>) return {&*lingering_shares_[row]};
  if constexpr (std::is_same_v<Parameters, ExchangeCombineParameters>) return {&*lingering_exchange_[row]};
}
template LingeringKernel<LowLatencyCombineParameters> Kernels::lingering(Op, Element) const noexcept;
template LingeringKernel<LowLatencySharesParameters> Kernels::lingering(Op, Element) const noexcept;
template LingeringKernel<ExchangeCombineParameters> Kernels::lingering(Op, Element) const noexcept;

template <class Parameters>
void LingeringKernel<Parameters>::launch(gpu::StreamView stream, const Parameters& parameters, unsigned blocks,
                                         const Stay& stay) const {
  check_team(parameters.frame, blocks);
  function->launch(stream, {blocks}, {Kernels::team_threads}, sizeof(Parameters),
                   LingeringParameters<Parameters>{parameters, stay});
}
template struct LingeringKernel<LowLatencyCombineParameters>;
template struct LingeringKernel<LowLatencySharesParameters>;
template struct LingeringKernel<LowLatencyMoveParameters>;
template struct LingeringKernel<LowLatencyEvenParameters>;
template struct LingeringKernel<ExchangeCombineParameters>;
template struct LingeringKernel<ExchangeMoveParameters>;
template struct LingeringKernel<ExchangeSpreadParameters>;
template struct LingeringKernel<CarryParameters>;

void Kernels::low_latency_shares(gpu::StreamView stream, Op op, Element element,
                                 const LowLatencySharesParameters& parameters, unsigned blocks) const {
  launch_team(*shares_[pipelined_row(op, element)], stream, blocks, parameters);
}

void Kernels::pipelined_reduction(gpu::StreamView stream, Op op, Element element,
                                  const PipelinedReductionParameters& parameters, unsigned blocks) const {
  launch_team(*pipelined_reduction_[pipelined_row(op, element)], stream, blocks, parameters);
}

void Kernels::ring_move(gpu::StreamView stream, const RingParameters& parameters, unsigned blocks) const {
  check_ring(parameters);
  launch_team(ring_move_, stream, blocks, parameters);
}

void Kernels::ring_reduction(gpu::StreamView stream, Op op, Element element, const RingParameters& parameters,
                             unsigned blocks) const {
  check_ring(parameters);
  launch_team(*ring_reduction_[pipelined_row(op, element)], stream, blocks, parameters);
}

void Kernels::pairwise_move(gpu::StreamView stream, const PairwiseMoveParameters& parameters, unsigned blocks) const {
  launch_team(pairwise_move_, stream, blocks, parameters);
}

void Kernels::pushed_move(gpu::StreamView stream, const PushedMoveParameters& parameters, unsigned blocks) const {
  launch_team(pushed_move_, stream, blocks, parameters);
}

bool Kernels::pipelines(Op op, Element element) noexcept {
  const auto found = combination(op, element);
  return found && pipelined(combinations()[found->row]);
}

bool Kernels::combines(Op op, Element element) noexcept { return combination(op, element).has_value(); }

}  // namespace crosslane::kernel
