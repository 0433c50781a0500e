// See pipelined.h.
#include "collective/pipelined.h"

#include "collective/frame.h"
#include "kernel/pipelined.h"
#include "kernel/pushed.h"

#include <algorithm>
#include <tuple>

namespace crosslane::collective::pipelined {
namespace {

// Measured on eight H200: at 128 MiB 64 blocks with chunks of 32 KiB give 319 GB/s, 128 blocks 326; on four 328 and 340. What a root
// collects from its window is through sooner in smaller chunks: 452 us rather than 470.
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t most_blocks = 128;
constexpr std::size_t most_chunk = std::size_t{32} << 10;
constexpr std::size_t most_collected_chunk = std::size_t{16} << 10;

class Reduction final : public Plan {
 public:
  /// `whole`: results go to all who want them, not to their owner alone. `told`: members tell where their parts are.
  Reduction(const Call& call, bool whole, bool told) : team_(call.team), shape_(call.shape) {
    // Whom nobody reaches collects; of two members it combines all by itself.
    const bool to_one = shape_.collective == Collective::reduce && call.all.empty();
    const bool collected = to_one && team_.size() > 2;
    const bool scatters = shape_.collective == Collective::reduce_scatter_block;
    const auto n = static_cast<std::size_t>(team_.size());
    // Of two members the root reads from one: not too few blocks then.
    const bool pulls = to_one && told && n > 2;
    blocks_ = pulls ? pulling_blocks(facts_of(team_), shape_.bytes)
                    : blocks_for(facts_of(team_), shape_.bytes * (scatters ? n : 1), bytes_a_block, most_blocks);
    parameters_.from = address_of(call.mine.send);
    std::size_t longest = 0;
    for (int member = 0; member < team_.size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      if (scatters) {
        parameters_.shard_begin[m] = m * shape_.bytes;
        parameters_.shard_bytes[m] = shape_.bytes;
      } else {
        std::tie(parameters_.shard_begin[m], parameters_.shard_bytes[m]) = share_of(shape_, team_.size(), member);
      }
      longest = std::max(longest, static_cast<std::size_t>(parameters_.shard_bytes[m]));
      parameters_.window[m] = address_of(team_.large_window(member));
      // A reduce-scatter's result has no place for others' blocks.
      const bool takes = whole ? takes_result(shape_, team_.me(), member) : member == team_.me();
      if (takes && (member == team_.me() || !call.all.empty())) {
        const Buffers& theirs = member == team_.me() ? call.mine : call.all[m];
        parameters_.result[parameters_.results++] =
            address_of(theirs.receive) - (scatters ? parameters_.shard_begin[m] : 0);
      }
    }
    // Equal on all members, as is all that decides where in the windows a chunk lies.
    const std::size_t fits = team::large_window_bytes_for(team_.size()) / kernel::pipelined_window_bytes(blocks_, n, 1);
    parameters_.chunk_bytes = chunk_of(longest, blocks_, std::min(collected ? most_collected_chunk : most_chunk, fits));
    if (collected) parameters_.results = 1;
    parameters_.collector = collected ? static_cast<std::uint32_t>(shape_.root) : kernel::most_members;
    if (call.landing != nullptr) parameters_.landing = *call.landing;
    parameters_.tells = to_one && told;
    if (parameters_.tells) parameters_.parts = *call.parts;
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().pipelined_reduction(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  // The large windows are one for all teams of a process: nothing else runs beside it.
  [[nodiscard]] unsigned blocks() const noexcept override { return whole_gpu; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::PipelinedReductionParameters parameters_{};
  unsigned blocks_;
};

// A gather or a scatter: the others push to the root, or it to them.
class Movement final : public Plan {
 public:
  explicit Movement(const Call& call) : team_(call.team) {
    const Shape& shape = call.shape;
    const auto n = static_cast<std::size_t>(team_.size());
    const int me = team_.me();
    blocks_ = blocks_for(facts_of(team_), shape.bytes * n, bytes_a_block, most_blocks);
    const std::size_t fits =
        team::large_window_bytes_for(team_.size()) / kernel::pushed_window_bytes(blocks_, n, places, 1);
    parameters_.bytes = shape.bytes;
    parameters_.places = places;
    parameters_.root =
        shape.collective == Collective::gather ? static_cast<std::uint32_t>(shape.root) : kernel::most_members;
    if (call.landing != nullptr) parameters_.landing = *call.landing;
    parameters_.chunk_bytes = chunk_of(shape.bytes, blocks_, std::min(most_moved_chunk, fits));
    parameters_.tells = shape.collective == Collective::scatter && call.parts != nullptr;
    if (parameters_.tells) parameters_.parts = *call.parts;
    for (int member = 0; member < team_.size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      parameters_.window[m] = address_of(team_.large_window(member));
      const std::uint64_t from = address_of(call.mine.send) + (sends_blocks(shape.collective) ? m * shape.bytes : 0);
      const std::uint64_t to =
          address_of(call.mine.receive) + (receives_blocks(shape.collective) ? m * shape.bytes : 0);
      const bool sends = shape.goes(me, member);
      const bool receives = shape.goes(member, me);
      if (member == me) {
        if (sends && from != to) parameters_.own = {from, to, shape.bytes};
        continue;
      }
      if (sends) parameters_.send_to |= std::uint32_t{1} << m;
      if (receives) parameters_.receive_from |= std::uint32_t{1} << m;
      parameters_.user[m] = sends ? from : to;
    }
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().pushed_move(stream, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return whole_gpu; }

 private:
  static constexpr std::size_t places = 3;
  static constexpr std::size_t most_moved_chunk = std::size_t{32} << 10;
  team::TeamView team_;
  kernel::PushedMoveParameters parameters_{};
  unsigned blocks_;
};

}  // namespace

bool supports(const Shape& shape, const TeamFacts& facts) {
  if (!facts.spinning || !facts.large_windows) return false;
  if (!combines(shape.collective)) return true;
  // A reduction's root collects in its window what others cannot write into its buffer.
  return (facts.exposed || shape.collective == Collective::reduce) &&
         kernel::Kernels::pipelines(shape.op, shape.element);
}

std::unique_ptr<Plan> prepare(const Call& call) {
  if (combines(call.shape.collective)) return std::make_unique<Reduction>(call, true, false);
  return std::make_unique<Movement>(call);
}

bool supports_told(const Shape& shape, const TeamFacts& facts) { return facts.told && supports(shape, facts); }

std::unique_ptr<Plan> prepare_told(const Call& call) { return std::make_unique<Reduction>(call, true, true); }

bool tells(const Algorithm& algorithm) noexcept {
  return algorithm.prepare == &prepare || algorithm.prepare == &prepare_told;
}

std::unique_ptr<Plan> prepare_shares(const Call& call) { return std::make_unique<Reduction>(call, false, false); }

}  // namespace crosslane::collective::pipelined
