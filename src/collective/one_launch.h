// OneLaunch: a plan that is one launch of a kernel, which may stay for further calls of the kind (team/lingerer.h). It must not know any
// algorithm.
#pragma once

#include "collective/frame.h"
#include "collective/plan.h"
#include "kernel/ringing.h"
#include "team/lingerer.h"

#include <cstdint>

namespace crosslane::collective {

/// Who derives from it fills `parameters_` but for the frame, and `blocks_`.
template <class Parameters>
class OneLaunch : public Plan {
 public:
  void start(gpu::StreamView stream, const Report& report) override {
    parameters_.frame = frame_of(team_, report);
    launch(stream);
  }

  bool ring(team::Lingerer& lingerer, const Report& report) override {
    if (lingering_.function == nullptr) return false;
    const kernel::ToldCall call(parameters_, report.value, static_cast<std::uint32_t>(team_.size()));
    return lingerer.ring({lingering_.function, blocks_}, call.words());
  }

  bool linger(team::Lingerer& lingerer, gpu::StreamView stream, const Report& report) override {
    if (lingering_.function == nullptr) return false;
    parameters_.frame = frame_of(team_, report);
    lingering_.launch(stream, parameters_, blocks_, lingerer.next());
    lingerer.launched({lingering_.function, blocks_});
    return true;
  }

  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 protected:
  OneLaunch(const team::TeamView& team, kernel::LingeringKernel<Parameters> lingering) noexcept
      : team_(team), lingering_(lingering) {}
  /// What the parameters say, once, with `blocks_`.
  virtual void launch(gpu::StreamView stream) const = 0;

  team::TeamView team_;
  Parameters parameters_{};
  unsigned blocks_ = 1;

 private:
  kernel::LingeringKernel<Parameters> lingering_;
};

/// The kernel that stays for reductions like this one, if there is one.
template <class Parameters>
[[nodiscard]] kernel::LingeringKernel<Parameters> lingering_reduction(const Call& call) noexcept {
  return call.team.kernels().template lingering<Parameters>(call.shape.op, call.shape.element);
}

}  // namespace crosslane::collective
