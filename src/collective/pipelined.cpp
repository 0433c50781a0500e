// See pipelined.h.
#include "collective/pipelined.h"

#include "collective/frame.h"
#include "kernel/pipelined.h"

#include <algorithm>

namespace crosslane::collective::pipelined {
namespace {

// Measured on eight H200: at 128 MiB 64 blocks with chunks of 32 KiB give 319 GB/s, 128 blocks 326; smaller chunks lose a few percent.
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t most_blocks = 64;
constexpr std::size_t most_chunk = std::size_t{32} << 10;

class Reduction final : public Plan {
 public:
  explicit Reduction(const Call& call) : team_(call.team), shape_(call.shape) {
    const bool scatters = shape_.collective == Collective::reduce_scatter_block;
    const auto n = static_cast<std::size_t>(team_.size());
    const Shards shards(shape_, team_.size());
    blocks_ = blocks_for(facts_of(team_), shape_.bytes * (scatters ? n : 1), bytes_a_block, most_blocks);
    // Equal on all members, as is all that decides where in the windows a chunk lies.
    constexpr std::size_t granule = 64;
    const std::size_t fits = team::large_window_bytes / kernel::pipelined_window_bytes(blocks_, n, 1);
    parameters_.chunk_bytes = std::min(most_chunk, fits / granule * granule);
    parameters_.from = address_of(call.mine.send);
    for (int member = 0; member < team_.size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      parameters_.shard_begin[m] = scatters ? m * shape_.bytes : shards.offset(member);
      parameters_.shard_bytes[m] = scatters ? shape_.bytes : shards.bytes(member);
      parameters_.window[m] = address_of(team_.large_window(member));
      // A reduce-scatter's result has no place for others' blocks.
      if (takes_result(shape_, team_.me(), member))
        parameters_.result[parameters_.results++] =
            address_of(call.all[m].receive) - (scatters ? parameters_.shard_begin[m] : 0);
    }
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

}  // namespace

bool supports(const Shape& shape, const TeamFacts& facts) {
  return facts.spinning && facts.exposed && facts.large_windows && kernel::Kernels::pipelines(shape.op, shape.element);
}

std::unique_ptr<Plan> prepare(const Call& call) { return std::make_unique<Reduction>(call); }

}  // namespace crosslane::collective::pipelined
