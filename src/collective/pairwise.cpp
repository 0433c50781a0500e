// See pairwise.h.
#include "collective/pairwise.h"

#include "collective/frame.h"
#include "kernel/pairwise.h"

#include <algorithm>

namespace crosslane::collective::pairwise {
namespace {

constexpr std::size_t bytes_a_block = std::size_t{8} << 10;
constexpr std::size_t most_blocks = 32;

class Pairwise final : public Plan {
 public:
  explicit Pairwise(const Call& call) : team_(call.team) {
    const team::RegionLayout& layout = team_.layout();
    const auto members = static_cast<std::size_t>(team_.size());
    // Equal on all members: of sizes that nobody knows all of, as many as the window feeds.
    const std::size_t volume = std::min(call.shape.bytes, layout.parity_bytes() / members) * members;
    blocks_ = blocks_for(facts_of(team_), volume, bytes_a_block, most_blocks);
    constexpr std::size_t granule = 16;
    parameters_.chunk_bytes =
        layout.parity_bytes() / kernel::pairwise_window_bytes(blocks_, members, granule) * granule;
    parameters_.parity = layout.parity_bytes();
    for (std::size_t p = 0; p < members; ++p) {
      parameters_.window[p] = address_of(team_.region(static_cast<int>(p))) + layout.staging;
      parameters_.send[p] = move_from(call.mine, call.pieces->send[p]);
      parameters_.receive[p] = move_to(call.mine, call.pieces->receive[p]);
    }
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().pairwise_move(stream, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  kernel::PairwiseMoveParameters parameters_{};
  unsigned blocks_;
};

}  // namespace

bool supports(const Shape& /*shape*/, const TeamFacts& facts) { return facts.spinning; }

std::unique_ptr<Plan> prepare(const Call& call) { return std::make_unique<Pairwise>(call); }

}  // namespace crosslane::collective::pairwise
