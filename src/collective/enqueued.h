// A call that is only enqueued on a stream: chooses, and starts a plan; never waits for anybody, and makes no call that a graph's
// capture forbids. Stateless, for any thread. It must not know MPI's handles.
#pragma once

#include "collective/choose.h"
#include "team/prepared.h"

namespace crosslane::collective {

class Enqueued {
 public:
  Enqueued(const Choice& choice, double watchdog_seconds) noexcept
      : choice_(choice), watchdog_seconds_(watchdog_seconds) {}

  /// `in_place`: MPI_IN_PLACE was passed for what is sent. `pieces`: where blocks may differ, else null. Returns the algorithm that was
  /// enqueued, a row of the catalogue.
  const Algorithm& run(const team::Prepared& prepared, const Shape& shape, const Buffers& mine, const Pieces* pieces,
                       bool in_place, gpu::StreamView stream) const;

  /// How long a kernel waits for a peer's before it gives up, in seconds.
  [[nodiscard]] double limit_seconds() const noexcept;

 private:
  const Choice& choice_;
  double watchdog_seconds_;
};

}  // namespace crosslane::collective
