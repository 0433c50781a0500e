// See low_latency.h.
#include "collective/low_latency.h"

#include "collective/frame.h"
#include "collective/one_launch.h"
#include "kernel/low_latency.h"
#include "kernel/low_latency_shares.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace crosslane::collective::low_latency {
namespace {

// Wire: Packets or Lines, how data and flags travel (kernel/wire.h).

// A block's threads have a word of 8 bytes each, in lines nearly two, and share those that go to several members.
constexpr std::size_t bytes_a_block = std::size_t{4} << 10;
template <class Wire>
constexpr std::size_t bytes_a_moving_block(int members) noexcept {
  constexpr std::size_t units = 3;  // a thread, all in flight at once
  const std::size_t share = units * Wire::words * bytes_a_block / static_cast<std::size_t>(std::max(members - 1, 1));
  return std::is_same_v<Wire, kernel::Lines> ? share : std::min(bytes_a_block, share);
}
constexpr std::size_t most_blocks = 64;

// Tells the kernel where the members' slots are.
template <class Wire, class Parameters>
void place_slots(Parameters& parameters, const team::TeamView& team) {
  const auto& [offset, slot_bytes] = team.layout().template slots<Wire>();
  parameters.slot_bytes = slot_bytes;
  for (int member = 0; member < team.size(); ++member)
    parameters.low_latency[static_cast<std::size_t>(member)] = address_of(team.region(member)) + offset;
}

template <class Wire>
std::size_t payload(const TeamFacts& facts) noexcept {
  return Wire::payload(team::region_layout(facts.members).slots<Wire>().slot_bytes);
}

// Of pieces, which may differ.
void describe(kernel::LowLatencyMoveParameters& parameters, const Call& call) {
  const int me = call.team.me();
  for (int peer = 0; peer < call.team.size(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    kernel::Move& send = parameters.send[p];
    kernel::Move& receive = parameters.receive[p];
    send = move_from(call.mine, call.pieces->send[p]);
    receive = move_to(call.mine, call.pieces->receive[p]);
    // In place, the own block is where it belongs.
    if (peer == me && send.from == receive.to) send.bytes = receive.bytes = 0;
  }
}
// Of blocks that are alike.
void describe(kernel::LowLatencyEvenParameters& parameters, const Call& call) {
  const Shape& shape = call.shape;
  const int me = call.team.me();
  parameters.from = address_of(call.mine.send);
  parameters.from_stride = sends_blocks(shape.collective) ? shape.bytes : 0;
  parameters.to = address_of(call.mine.receive);
  parameters.to_stride = receives_blocks(shape.collective) ? shape.bytes : 0;
  parameters.bytes = shape.bytes;
  if (shape.bytes == 0) return;
  for (int peer = 0; peer < call.team.size(); ++peer) {
    const std::uint32_t bit = std::uint32_t{1} << peer;
    if (shape.goes(me, peer)) parameters.send_to |= bit;
    if (shape.goes(peer, me)) parameters.receive_from |= bit;
  }
}

template <class Wire, class Parameters>
class Movement final : public OneLaunch<Parameters> {
  using Base = OneLaunch<Parameters>;

 public:
  explicit Movement(const Call& call)
      : Base(call.team, call.team.kernels().template lingering_low_latency_move<Wire, Parameters>()) {
    Base::blocks_ =
        blocks_for(facts_of(call.team), call.shape.bytes, bytes_a_moving_block<Wire>(call.team.size()), most_blocks);
    place_slots<Wire>(Base::parameters_, call.team);
    describe(Base::parameters_, call);
  }

 private:
  void launch(gpu::StreamView stream) const override {
    Base::team_.kernels().template low_latency_move<Wire>(stream, Base::parameters_, Base::blocks_);
  }
};

template <class Wire>
std::unique_ptr<Plan> movement(const Call& call) {
  if (call.pieces != nullptr) return std::make_unique<Movement<Wire, kernel::LowLatencyMoveParameters>>(call);
  return std::make_unique<Movement<Wire, kernel::LowLatencyEvenParameters>>(call);
}

class Combination final : public OneLaunch<kernel::LowLatencyCombineParameters> {
 public:
  explicit Combination(const Call& call)
      : OneLaunch(call.team, lingering_reduction<kernel::LowLatencyCombineParameters>(call)), shape_(call.shape) {
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
    place_slots<kernel::Packets>(parameters_, team_);
  }

 private:
  void launch(gpu::StreamView stream) const override {
    team_.kernels().low_latency_combine(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  Shape shape_;
};

std::size_t largest_share(const Shape& shape, int members) noexcept {
  std::size_t largest = 0;
  for (int member = 0; member < members; ++member) largest = std::max(largest, share_of(shape, members, member).second);
  return largest;
}

class Shares final : public OneLaunch<kernel::LowLatencySharesParameters> {
 public:
  explicit Shares(const Call& call)
      : OneLaunch(call.team, lingering_reduction<kernel::LowLatencySharesParameters>(call)), shape_(call.shape) {
    const std::size_t largest = largest_share(shape_, team_.size());
    blocks_ = blocks_for(facts_of(team_), largest, bytes_a_block, most_blocks);
    for (int member = 0; member < team_.size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      std::tie(parameters_.share_begin[m], parameters_.share_bytes[m]) = share_of(shape_, team_.size(), member);
      if (takes_result(shape_, team_.me(), member)) parameters_.takers |= std::uint32_t{1} << m;
    }
    place_slots<kernel::Packets>(parameters_, team_);
    parameters_.units = kernel::Packets::units_of(largest);
    parameters_.from = address_of(call.mine.send);
    parameters_.to = address_of(call.mine.receive);
    if (takes_result(shape_, team_.me(), team_.me()))
      parameters_.own_to = parameters_.to + parameters_.share_begin[static_cast<std::size_t>(team_.me())];
  }

 private:
  void launch(gpu::StreamView stream) const override {
    team_.kernels().low_latency_shares(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  Shape shape_;
};

}  // namespace

bool supports(const Shape& shape, const TeamFacts& facts) {
  // A kernel that combines takes as much from each member for each.
  if (!facts.spinning || !shape.even) return false;
  return shape.collective == Collective::barrier || shape.bytes <= payload<kernel::Packets>(facts);
}

std::unique_ptr<Plan> prepare(const Call& call) {
  if (combines(call.shape.collective)) return std::make_unique<Combination>(call);
  return movement<kernel::Packets>(call);
}

bool supports_two_shot(const Shape& shape, const TeamFacts& facts) {
  if (!facts.spinning || !kernel::Kernels::pipelines(shape.op, shape.element)) return false;
  // A slot holds the largest share, and its result.
  const std::size_t most = payload<kernel::Packets>(facts) / 2;
  return shape.bytes / static_cast<std::size_t>(facts.members) <= most && largest_share(shape, facts.members) <= most;
}
std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<Shares>(call); }

bool supports_lines(const Shape& shape, const TeamFacts& facts) {
  return facts.whole_lines && facts.spinning && shape.even && shape.bytes <= payload<kernel::Lines>(facts);
}
std::unique_ptr<Plan> prepare_lines(const Call& call) { return movement<kernel::Lines>(call); }

}  // namespace crosslane::collective::low_latency
