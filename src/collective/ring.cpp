// See ring.h.
#include "collective/ring.h"

#include "collective/frame.h"
#include "kernel/ring.h"

#include <algorithm>
#include <tuple>

namespace crosslane::collective::ring {
namespace {

// Measured on four H200, an all-reduce of 128 MiB: 577 us with chunks of 96 KiB, 582 with 64, 676 with 32 (in rounds of four), 876 with
// 64 blocks of these; 610 with 96 blocks of 64 KiB. Rounds of three gain nothing.
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t most_blocks = 128;
constexpr std::size_t most_chunk = std::size_t{96} << 10;
constexpr std::uint32_t round = 2;
constexpr std::uint32_t places = 2 * round;

class Ring final : public Plan {
 public:
  explicit Ring(const Call& call) : team_(call.team), shape_(call.shape) {
    const auto n = static_cast<std::uint32_t>(team_.size());
    const auto me = static_cast<std::uint32_t>(team_.me());
    const auto root = static_cast<std::uint32_t>(shape_.root);
    const std::uint64_t send = address_of(call.mine.send), receive = address_of(call.mine.receive);
    const std::size_t own_block = me * shape_.bytes;
    parameters_.complete = combines(shape_.collective) ? n - 1 : 0;
    parameters_.end = shape_.collective == Collective::allreduce ? 2 * n - 2 : n - 1;
    parameters_.from = send;
    parameters_.result = receive;
    parameters_.shards = n;
    switch (shape_.collective) {
      case Collective::reduce:
        parameters_.starter = (root + 1) % n;
        parameters_.shards = 1;
        if (me != root) parameters_.result = 0;
        break;
      case Collective::broadcast:
        parameters_.starter = root;
        parameters_.shards = 1;
        parameters_.from = receive;
        break;
      case Collective::allgather:
        parameters_.starter = 0;
        parameters_.from = send - own_block;
        break;
      case Collective::reduce_scatter_block:
        parameters_.starter = 1;
        parameters_.result = receive - own_block;
        break;
      default:
        parameters_.starter = 1;
        break;
    }
    std::size_t longest = 0;
    for (std::uint32_t s = 0; s < parameters_.shards; ++s) {
      if (shape_.collective == Collective::allreduce) {
        std::tie(parameters_.shard_begin[s], parameters_.shard_bytes[s]) =
            share_of(shape_, team_.size(), static_cast<int>(s));
      } else {
        parameters_.shard_begin[s] = s * shape_.bytes;
        parameters_.shard_bytes[s] = shape_.bytes;
      }
      longest = std::max(longest, static_cast<std::size_t>(parameters_.shard_bytes[s]));
    }
    blocks_ = blocks_for(facts_of(team_), longest, bytes_a_block, most_blocks);
    parameters_.round = round;
    parameters_.places = places;
    const std::size_t fits = team::large_window_bytes_for(team_.size()) / kernel::ring_window_bytes(blocks_, places, 1);
    parameters_.chunk_bytes =
        chunk_of(longest, blocks_, parameters_.complete == 0 ? most_chunk : std::min(most_chunk, fits), round);
    const int next = static_cast<int>((me + 1) % n);
    if (parameters_.end > parameters_.complete)
      parameters_.next_result = address_of(call.all[static_cast<std::size_t>(next)].receive);
    if (parameters_.complete != 0) {
      parameters_.window = address_of(team_.large_window(team_.me()));
      parameters_.next_window = address_of(team_.large_window(next));
    }
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    if (parameters_.complete == 0) {
      team_.kernels().ring_move(stream, parameters_, blocks_);
    } else {
      team_.kernels().ring_reduction(stream, shape_.op, shape_.element, parameters_, blocks_);
    }
  }

  // The large windows are one for all teams of a process: nothing else runs beside what uses them.
  [[nodiscard]] unsigned blocks() const noexcept override { return parameters_.complete == 0 ? blocks_ : whole_gpu; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::RingParameters parameters_{};
  unsigned blocks_ = 0;
};

}  // namespace

bool supports(const Shape& shape, const TeamFacts& facts) {
  // A member of two would have the same neighbour on both sides; ranks that share a GPU also share what its blocks have under way.
  if (!facts.spinning || facts.members < 3 || facts.most_on_one_gpu > 1) return false;
  const bool results_travel =
      shape.collective != Collective::reduce && shape.collective != Collective::reduce_scatter_block;
  if (results_travel && !facts.exposed) return false;
  if (!combines(shape.collective)) return true;
  // Each shard is combined from another member on.
  const bool any_order = !facts.deterministic || exact(shape.element);
  return any_order && facts.large_windows && kernel::Kernels::pipelines(shape.op, shape.element);
}

std::unique_ptr<Plan> prepare(const Call& call) { return std::make_unique<Ring>(call); }

}  // namespace crosslane::collective::ring
