// See copy_engine.h.
#include "collective/copy_engine.h"

#include "collective/frame.h"
#include "collective/pipelined.h"
#include "collective/pushes.h"
#include "gpu/copy.h"
#include "kernel/exchange.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace crosslane::collective::copy_engine {
namespace {

// All members have come as far on their streams; or some member was given up, and what is on this stream behind it goes on all the same: copies of the
// driver ask nothing, unlike what kernels store (kernel/team.h). docs/collectives.md says so of this algorithm, which no shipped table prefers.
void enqueue_barrier(const team::TeamView& team, gpu::StreamView stream, const Report& report) {
  kernel::ExchangeMoveParameters parameters{};
  parameters.frame = frame_of(team, report);
  team.kernels().exchange_move(stream, parameters, 1);
}

void enqueue_copy(const kernel::Move& move, gpu::StreamView stream) {
  if (move.bytes == 0 || move.from == move.to) return;
  gpu::copy_async(reinterpret_cast<void*>(move.to), reinterpret_cast<const void*>(move.from), move.bytes, stream);
}

// Copies that each member makes at the same time, each to another one: they end together, and no two share a link. Left to
// themselves they may drift apart until some do: copies of 32 MiB among four H200 take 290 to 430 us for all three, in step 290.
void enqueue_in_step(const std::vector<kernel::Move>& moves, const team::TeamView& team, gpu::StreamView stream,
                     const Report& report) {
  for (const kernel::Move& move : moves) {
    enqueue_copy(move, stream);
    const bool last = &move == &moves.back();
    enqueue_barrier(team, stream, last ? report : report.of_earlier_ones());
  }
}

class Push final : public Plan {
 public:
  explicit Push(const Call& call) : team_(call.team) {
    // Of unequal blocks none could wait for all others.
    in_step_ = call.shape.collective == Collective::allgather || call.shape.collective == Collective::alltoall;
    for (int step = 1; step < team_.size(); ++step) moves_.push_back(push_of(call, step));
    own_ = push_of(call, 0);
  }

  void start(gpu::StreamView stream, const Report& report) override {
    enqueue_barrier(team_, stream, report.of_earlier_ones());
    enqueue_copy(own_, stream);
    if (in_step_ && !moves_.empty()) return enqueue_in_step(moves_, team_, stream, report);
    for (const kernel::Move& move : moves_) enqueue_copy(move, stream);
    enqueue_barrier(team_, stream, report);
  }

  [[nodiscard]] std::uint64_t launches() const noexcept override {
    return in_step_ && !moves_.empty() ? 1 + moves_.size() : 2;
  }
  [[nodiscard]] unsigned blocks() const noexcept override { return 1; }

 private:
  team::TeamView team_;
  bool in_step_;
  std::vector<kernel::Move> moves_;
  kernel::Move own_;
};

class TwoShot final : public Plan {
 public:
  explicit TwoShot(const Call& call) : team_(call.team), shares_(pipelined::prepare_shares(call)) {
    const auto [first, bytes] = share_of(call.shape, team_.size(), team_.me());
    const std::uint64_t result = address_of(call.mine.receive) + first;
    for (int step = 1; step < team_.size(); ++step) {
      const Buffers& theirs = call.all[static_cast<std::size_t>((team_.me() + step) % team_.size())];
      moves_.push_back({result, address_of(theirs.receive) + first, bytes});
    }
  }

  // A member's share of the others' arrays is read for that member alone, so that it may be written once that kernel is over, wherever
  // the others are.
  void start(gpu::StreamView stream, const Report& report) override {
    if (moves_.empty()) return shares_->start(stream, report);
    shares_->start(stream, report.of_earlier_ones());
    enqueue_in_step(moves_, team_, stream, report);
  }

  [[nodiscard]] std::uint64_t launches() const noexcept override { return shares_->launches() + moves_.size(); }
  [[nodiscard]] unsigned blocks() const noexcept override { return shares_->blocks(); }

 private:
  team::TeamView team_;
  std::unique_ptr<Plan> shares_;
  std::vector<kernel::Move> moves_;
};

}  // namespace

std::unique_ptr<Plan> prepare_push(const Call& call) { return std::make_unique<Push>(call); }
std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<TwoShot>(call); }

}  // namespace crosslane::collective::copy_engine
