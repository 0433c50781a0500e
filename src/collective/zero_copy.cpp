// See zero_copy.h.
#include "collective/zero_copy.h"

#include "collective/frame.h"
#include "kernel/exchange.h"

#include <algorithm>

namespace crosslane::collective::zero_copy {
namespace {

// Measured on eight H200: reading from all peers at once is best with few blocks (16 MiB: 111 us with 32, 146 with 128), pushing
// with more.
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t most_pulling = 32;
constexpr std::size_t most_pushing = 64;

class Push final : public Plan {
 public:
  explicit Push(const Call& call) : team_(call.team) {
    const Shape& shape = call.shape;
    const int me = team_.me();
    const auto own = static_cast<std::size_t>(me);
    parameters_.end_barrier = true;
    // Each member begins with the one after it, so that no receiver has all at once.
    for (int step = 0; step < team_.size(); ++step) {
      const int to = (me + step) % team_.size();
      const auto other = static_cast<std::size_t>(to);
      if (call.pieces != nullptr) {
        const kernel::Move from = move_from(call.mine, call.pieces->send[other]);
        // The own piece is known here; those of others are where they wait for this member's.
        const std::uint64_t place =
            to == me ? move_to(call.mine, call.pieces->receive[other]).to : address_of(call.all[other].receive);
        if (from.bytes != 0 && from.from != place)
          parameters_.move[parameters_.moves++] = {from.from, place, from.bytes};
        continue;
      }
      if (!shape.goes(me, to)) continue;
      const bool picked = sends_blocks(shape.collective);
      const bool placed = receives_blocks(shape.collective);
      const kernel::Move move{address_of(call.mine.send) + (picked ? other * shape.bytes : 0),
                              address_of(call.all[other].receive) + (placed ? own * shape.bytes : 0), shape.bytes};
      if (move.from != move.to) parameters_.move[parameters_.moves++] = move;
    }
    blocks_ =
        blocks_for(facts_of(team_), shape.bytes * static_cast<std::size_t>(team_.size()), bytes_a_block, most_pushing);
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().exchange_move(stream, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  kernel::ExchangeMoveParameters parameters_{};
  unsigned blocks_;
};

// The members other than the root, each with a share of the bytes.
class Shares {
 public:
  Shares(const Shape& shape, int members) : shards_(shape, std::max(members - 1, 1)), root_(shape.root) {}
  [[nodiscard]] std::size_t offset(int member) const noexcept { return shards_.offset(index(member)); }
  [[nodiscard]] std::size_t bytes(int member) const noexcept {
    return member == root_ ? 0 : shards_.bytes(index(member));
  }

 private:
  [[nodiscard]] int index(int member) const noexcept { return member > root_ ? member - 1 : member; }
  Shards shards_;
  int root_;
};

// Step k moves the shares of part k from the root to their owners, and those of part k - 1 from their owners to the rest: the root
// sends every byte once, and every other rank receives every byte once.
class Broadcast final : public Plan {
 public:
  explicit Broadcast(const Call& call)
      : team_(call.team),
        shape_(call.shape),
        all_(call.all.begin(), call.all.end()),
        part_(std::min(most_part, std::max(granule, (shape_.bytes / fewest_parts + granule - 1) / granule * granule))),
        blocks_(blocks_for(facts_of(team_), part_, bytes_a_block, most_pushing)) {}

  void start(gpu::StreamView stream, const Report& report) override {
    const std::size_t parts = std::max<std::size_t>((shape_.bytes + part_ - 1) / part_, 1);
    for (std::size_t step = 0; step <= parts; ++step) {
      kernel::ExchangeMoveParameters parameters{};
      const bool last = step == parts;
      parameters.frame = frame_of(team_, last ? report : Report{.failed = report.failed, .limit_ns = report.limit_ns});
      parameters.end_barrier = last;
      if (team_.me() != shape_.root) {
        if (!last) take(parameters, step * part_, part_, team_.me(), shape_.root);
        if (step > 0) {
          for (int hop = 1; hop < team_.size(); ++hop) {
            const int owner = (team_.me() + hop) % team_.size();
            take(parameters, (step - 1) * part_, part_, owner, owner);
          }
        }
      }
      team_.kernels().exchange_move(stream, parameters, blocks_);
    }
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  static constexpr std::size_t most_part = std::size_t{16} << 20;
  static constexpr std::size_t fewest_parts = 4;
  static constexpr std::size_t granule = std::size_t{64} << 10;

  // The share of member `whose` in the part at `offset`, from the buffer of `from`.
  void take(kernel::ExchangeMoveParameters& parameters, std::size_t offset, std::size_t most, int whose,
            int from) const {
    Shape part = shape_;
    part.bytes = std::min(most, shape_.bytes - offset);
    part.element = kernel::Element::u8;
    const Shares shares(part, team_.size());
    const std::size_t bytes = shares.bytes(whose);
    if (bytes == 0) return;
    const std::size_t at = offset + shares.offset(whose);
    parameters.move[parameters.moves++] = {address_of(all_[static_cast<std::size_t>(from)].receive) + at,
                                           address_of(all_[static_cast<std::size_t>(team_.me())].receive) + at, bytes};
  }

  team::TeamView team_;
  Shape shape_;
  std::vector<Buffers> all_;
  std::size_t part_;
  unsigned blocks_;
};

class TwoShot final : public Plan {
 public:
  explicit TwoShot(const Call& call) : team_(call.team), shape_(call.shape) {
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
      case Collective::reduce:
        // The root receives every result and sends all it has: it has enough to do without a share.
        if (team_.size() > 2) {
          const Shares shares(shape_, team_.size());
          from = to = shares.offset(team_.me());
          bytes = shares.bytes(team_.me());
        } else {
          bytes = team_.me() == shape_.root ? shape_.bytes : 0;
        }
        break;
      default:
        const Shards shards(shape_, team_.size());
        from = to = shards.offset(team_.me());
        bytes = shards.bytes(team_.me());
        break;
    }
    for (int member = 0; member < team_.size(); ++member) {
      const Buffers& theirs = call.all[static_cast<std::size_t>(member)];
      parameters_.source[parameters_.sources++] = address_of(theirs.send) + from;
      if (bytes != 0 && takes_result(shape_, team_.me(), member)) {
        parameters_.destination[parameters_.destinations++] = address_of(theirs.receive) + to;
      }
    }
    parameters_.count = bytes / kernel::bytes_of(shape_.element);
    parameters_.second_barrier = true;
    const std::size_t volume =
        sends_blocks(shape_.collective) ? shape_.bytes * static_cast<std::size_t>(team_.size()) : shape_.bytes;
    blocks_ = blocks_for(facts_of(team_), volume, bytes_a_block, most_pulling);
  }

  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    team_.kernels().exchange_combine(stream, shape_.op, shape_.element, parameters_, blocks_);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::ExchangeCombineParameters parameters_{};
  unsigned blocks_;
};

}  // namespace

bool supports(const Shape& /*shape*/, const TeamFacts& facts) { return facts.spinning && facts.exposed; }

std::unique_ptr<Plan> prepare_push(const Call& call) { return std::make_unique<Push>(call); }
std::unique_ptr<Plan> prepare_broadcast(const Call& call) { return std::make_unique<Broadcast>(call); }
std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<TwoShot>(call); }

}  // namespace crosslane::collective::zero_copy
