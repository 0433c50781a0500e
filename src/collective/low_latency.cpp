// See low_latency.h.
#include "collective/low_latency.h"

#include "collective/frame.h"
#include "kernel/low_latency.h"
#include "kernel/low_latency_shares.h"

#include <algorithm>
#include <tuple>

namespace crosslane::collective::low_latency {
namespace {

// A block's threads have a word of 8 bytes each, and share those that go to several members.
constexpr std::size_t bytes_a_block = std::size_t{4} << 10;
constexpr std::size_t bytes_a_moving_block(int members) noexcept {
  constexpr std::size_t words = 3;  // a thread, all in flight at once
  return std::min(bytes_a_block, words * bytes_a_block / static_cast<std::size_t>(std::max(members - 1, 1)));
}
constexpr std::size_t most_blocks = 64;

class Movement final : public Plan {
 public:
  explicit Movement(const Call& call) : team_(call.team) {
    const Shape& shape = call.shape;
    blocks_ = blocks_for(facts_of(team_), shape.bytes, bytes_a_moving_block(team_.size()), most_blocks);
    for (int peer = 0; peer < team_.size(); ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      kernel::Move& send = parameters_.send[p];
      kernel::Move& receive = parameters_.receive[p];
      if (call.pieces != nullptr) {
        send = move_from(call.mine, call.pieces->send[p]);
        receive = move_to(call.mine, call.pieces->receive[p]);
      } else {
        if (shape.goes(team_.me(), peer))
          send = {address_of(call.mine.send) + (sends_blocks(shape.collective) ? p * shape.bytes : 0), 0, shape.bytes};
        if (shape.goes(peer, team_.me()))
          receive = {0, address_of(call.mine.receive) + (receives_blocks(shape.collective) ? p * shape.bytes : 0),
                     shape.bytes};
      }
      // In place, the own block is where it belongs.
      if (peer == team_.me() && send.from == receive.to) send.bytes = receive.bytes = 0;
      parameters_.low_latency[p] = address_of(team_.region(peer)) + team_.layout().low_latency;
    }
    parameters_.slot_bytes = team_.layout().slot_bytes;
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().low_latency_move(stream, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  kernel::LowLatencyMoveParameters parameters_{};
  unsigned blocks_;
};

class Combination final : public Plan {
 public:
  explicit Combination(const Call& call) : team_(call.team), shape_(call.shape) {
    blocks_ = blocks_for(facts_of(team_), shape_.bytes, bytes_a_block, most_blocks);
    const auto n = static_cast<std::size_t>(team_.size());
    const std::uint32_t everybody = n == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << n) - 1;
    const std::uint32_t own = std::uint32_t{1} << team_.me();
    const std::uint32_t lower = own - 1;
    const std::uint32_t higher = everybody & ~lower & ~own;
    parameters_.send_to = everybody & ~own;
    parameters_.receive_from = everybody;
    switch (shape_.collective) {
      case Collective::reduce:
        parameters_.send_to = (std::uint32_t{1} << shape_.root) & ~own;
        parameters_.receive_from = team_.me() == shape_.root ? everybody : 0;
        break;
      case Collective::reduce_scatter_block:
      case Collective::reduce_scatter:
        parameters_.from_stride = shape_.bytes;
        break;
      case Collective::scan:
        parameters_.send_to = higher;
        parameters_.receive_from = lower | own;
        break;
      case Collective::exscan:
        parameters_.send_to = higher;
        parameters_.receive_from = lower;
        break;
      default:
        break;
    }
    parameters_.from = address_of(call.mine.send);
    parameters_.to = address_of(call.mine.receive);
    parameters_.count = shape_.count();
    parameters_.slot_bytes = team_.layout().slot_bytes;
    for (int peer = 0; peer < team_.size(); ++peer) {
      parameters_.low_latency[static_cast<std::size_t>(peer)] =
          address_of(team_.region(peer)) + team_.layout().low_latency;
    }
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().low_latency_combine(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::LowLatencyCombineParameters parameters_{};
  unsigned blocks_;
};

std::size_t largest_share(const Shape& shape, int members) noexcept {
  std::size_t largest = 0;
  for (int member = 0; member < members; ++member) largest = std::max(largest, share_of(shape, members, member).second);
  return largest;
}

class Shares final : public Plan {
 public:
  explicit Shares(const Call& call) : team_(call.team), shape_(call.shape) {
    const std::size_t largest = largest_share(shape_, team_.size());
    blocks_ = blocks_for(facts_of(team_), largest, bytes_a_block, most_blocks);
    for (int member = 0; member < team_.size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      std::tie(parameters_.share_begin[m], parameters_.share_bytes[m]) = share_of(shape_, team_.size(), member);
      if (takes_result(shape_, team_.me(), member)) parameters_.takers |= std::uint32_t{1} << m;
      parameters_.low_latency[m] = address_of(team_.region(member)) + team_.layout().low_latency;
    }
    parameters_.slot_bytes = team_.layout().slot_bytes;
    parameters_.packets = (largest + 7) / 8;
    parameters_.from = address_of(call.mine.send);
    parameters_.to = address_of(call.mine.receive);
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().low_latency_shares(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::LowLatencySharesParameters parameters_{};
  unsigned blocks_;
};

}  // namespace

bool supports(const Shape& shape, const TeamFacts& facts) {
  // A kernel that combines takes as much from each member for each.
  if (!facts.spinning || !shape.even) return false;
  return shape.collective == Collective::barrier ||
         shape.bytes <= team::region_layout(facts.members).low_latency_payload();
}

std::unique_ptr<Plan> prepare(const Call& call) {
  if (combines(call.shape.collective)) return std::make_unique<Combination>(call);
  return std::make_unique<Movement>(call);
}

bool supports_two_shot(const Shape& shape, const TeamFacts& facts) {
  if (!facts.spinning || !kernel::Kernels::pipelines(shape.op, shape.element)) return false;
  // A slot holds the largest share twice: a part and a result.
  const std::size_t most = team::region_layout(facts.members).low_latency_payload() / 2;
  return shape.bytes / static_cast<std::size_t>(facts.members) <= most && largest_share(shape, facts.members) <= most;
}

std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<Shares>(call); }

}  // namespace crosslane::collective::low_latency
