// See zero_copy.h.
#include "collective/zero_copy.h"

#include "collective/frame.h"
#include "collective/one_launch.h"
#include "collective/pushes.h"
#include "kernel/exchange.h"

#include <tuple>

namespace crosslane::collective::zero_copy {
namespace {

// Measured on four H200: 128 blocks that push gather 128 MiB in 296 us, 64 in 302, 32 in 326; of 2 MiB 64 are enough.
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t bytes_a_pushing_block = std::size_t{32} << 10;
constexpr std::size_t most_pushing = 128;
constexpr std::size_t most_spreading = 64;

class Push final : public OneLaunch<kernel::ExchangeMoveParameters> {
 public:
  explicit Push(const Call& call) : OneLaunch(call.team, call.team.kernels().lingering_move()) {
    const Shape& shape = call.shape;
    parameters_.end_barrier = true;
    for (const kernel::Move& move : pushes_of(call)) parameters_.move[parameters_.moves++] = move;
    blocks_ = blocks_for(facts_of(team_), shape.bytes * static_cast<std::size_t>(team_.size()), bytes_a_pushing_block,
                         most_pushing);
  }

 private:
  void launch(gpu::StreamView stream) const override { team_.kernels().exchange_move(stream, parameters_, blocks_); }
};

// Each member but the root reads its share of the root's buffer, once, and writes it into the receive buffers of all but the root:
// the root sends every byte once, and every other member sends and receives every byte once at most.
class Broadcast final : public OneLaunch<kernel::ExchangeSpreadParameters> {
 public:
  explicit Broadcast(const Call& call) : OneLaunch(call.team, call.team.kernels().lingering_spread()) {
    blocks_ = blocks_for(facts_of(team_), call.shape.bytes, bytes_a_block, most_spreading);
    if (team_.me() == call.shape.root) return;
    Shape bytes = call.shape;
    bytes.element = kernel::Element::u8;
    const SharesOfOthers shares(bytes, team_.size());
    const std::size_t at = shares.offset(team_.me());
    parameters_.bytes = shares.bytes(team_.me());
    parameters_.from = address_of(call.all[static_cast<std::size_t>(call.shape.root)].receive) + at;
    for (int member = 0; member < team_.size(); ++member) {
      if (member == call.shape.root) continue;
      parameters_.to[parameters_.destinations++] = address_of(call.all[static_cast<std::size_t>(member)].receive) + at;
    }
  }

 private:
  void launch(gpu::StreamView stream) const override { team_.kernels().exchange_spread(stream, parameters_, blocks_); }
};

class TwoShot final : public OneLaunch<kernel::ExchangeCombineParameters> {
 public:
  explicit TwoShot(const Call& call)
      : OneLaunch(call.team, lingering_reduction<kernel::ExchangeCombineParameters>(call)), shape_(call.shape) {
    const auto own = static_cast<std::size_t>(team_.me());
    std::size_t from = 0;  // of the own share in a send buffer
    std::size_t to = 0;    // and in a receive buffer
    std::size_t bytes = 0;
    switch (shape_.collective) {
      case Collective::reduce_scatter_block:
        from = own * shape_.bytes;
        bytes = shape_.bytes;
        break;
      case Collective::reduce_scatter:
        from = call.pieces->send[own].offset;
        bytes = call.pieces->send[own].bytes;
        break;
      default:
        std::tie(from, bytes) = share_of(shape_, team_.size(), team_.me());
        to = from;
        break;
    }
    parameters_.own_results = true;
    for (int member = 0; member < team_.size(); ++member) {
      const Buffers& theirs = call.all[static_cast<std::size_t>(member)];
      parameters_.source[parameters_.sources++] = address_of(theirs.send) + from;
      if (bytes != 0 && takes_result(shape_, team_.me(), member)) {
        parameters_.destination[parameters_.destinations++] = address_of(theirs.receive) + to;
        if (member != team_.me()) parameters_.own_results = false;
      }
    }
    parameters_.count = bytes / kernel::bytes_of(shape_.element);
    parameters_.second_barrier = true;
    const std::size_t volume =
        sends_blocks(shape_.collective) ? shape_.bytes * static_cast<std::size_t>(team_.size()) : shape_.bytes;
    blocks_ = pulling_blocks(facts_of(team_), volume);
  }

 private:
  void launch(gpu::StreamView stream) const override {
    team_.kernels().exchange_combine(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  Shape shape_;
};

}  // namespace

bool supports(const Shape& /*shape*/, const TeamFacts& facts) { return facts.spinning && facts.exposed; }

std::unique_ptr<Plan> prepare_push(const Call& call) { return std::make_unique<Push>(call); }
std::unique_ptr<Plan> prepare_broadcast(const Call& call) { return std::make_unique<Broadcast>(call); }
std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<TwoShot>(call); }

}  // namespace crosslane::collective::zero_copy
