// See copy_engine.h.
#include "collective/copy_engine.h"

#include "collective/frame.h"
#include "collective/pushes.h"
#include "collective/zero_copy.h"
#include "gpu/copy.h"
#include "kernel/exchange.h"

#include <cstddef>
#include <vector>

namespace crosslane::collective::copy_engine {
namespace {

// For all kernels of a call but its last one.
Report without_end(const Report& report) noexcept {
  Report silent = report;
  silent.done = nullptr;
  return silent;
}

// All members have come as far on their streams.
void enqueue_barrier(const team::TeamView& team, gpu::StreamView stream, const Report& report) {
  kernel::ExchangeMoveParameters parameters{};
  parameters.frame = frame_of(team, report);
  team.kernels().exchange_move(stream, parameters, 1);
}

// A stream's copies are one after another: that each member writes to another one at a time is what keeps the links busy.
void enqueue_copies(const std::vector<kernel::Move>& moves, gpu::StreamView stream) {
  for (const kernel::Move& move : moves)
    gpu::copy_async(reinterpret_cast<void*>(move.to), reinterpret_cast<const void*>(move.from), move.bytes, stream);
}

class Push final : public Plan {
 public:
  explicit Push(const Call& call) : team_(call.team), moves_(pushes_of(call)) {}

  void start(gpu::StreamView stream, const Report& report) override {
    enqueue_barrier(team_, stream, without_end(report));
    enqueue_copies(moves_, stream);
    enqueue_barrier(team_, stream, report);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return 1; }

 private:
  team::TeamView team_;
  std::vector<kernel::Move> moves_;
};

class TwoShot final : public Plan {
 public:
  explicit TwoShot(const Call& call) : team_(call.team), shape_(call.shape) {
    const auto [first, bytes] = share_of(shape_, team_.size(), team_.me());
    const std::uint64_t result = address_of(call.mine.receive) + first;
    for (const Buffers& theirs : call.all) parameters_.source[parameters_.sources++] = address_of(theirs.send) + first;
    if (bytes != 0) parameters_.destination[parameters_.destinations++] = result;
    parameters_.count = bytes / kernel::bytes_of(shape_.element);
    blocks_ = zero_copy::pulling_blocks(facts_of(team_), shape_.bytes);
    for (int step = 1; step < team_.size() && bytes != 0; ++step) {
      const Buffers& theirs = call.all[static_cast<std::size_t>((team_.me() + step) % team_.size())];
      moves_.push_back({result, address_of(theirs.receive) + first, bytes});
    }
  }

  // A member's share of the others' buffers is read by that member alone, so that it may be written once that kernel is over, wherever
  // the others are.
  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, without_end(report));
    team_.kernels().exchange_combine(stream, shape_.op, shape_.element, parameters_, blocks_);
    enqueue_copies(moves_, stream);
    enqueue_barrier(team_, stream, report);
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  team::TeamView team_;
  Shape shape_;
  kernel::ExchangeCombineParameters parameters_{};
  std::vector<kernel::Move> moves_;
  unsigned blocks_;
};

}  // namespace

std::unique_ptr<Plan> prepare_push(const Call& call) { return std::make_unique<Push>(call); }
std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<TwoShot>(call); }

}  // namespace crosslane::collective::copy_engine
