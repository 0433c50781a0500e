// A blocking call that goes direct: shows its buffers, waits until all members are there, chooses, runs, and waits for the word
// that the last kernel writes. Stateless, for any thread. It must not know MPI's handles.
#pragma once

#include "collective/choose.h"
#include "engine/engine.h"
#include "share/exposure.h"
#include "team/team.h"

namespace crosslane::collective {

/// One rank's side of a call.
struct Side {
  Buffers buffers;
  /// As others may map them, where the rank could find out; ids of 0 otherwise.
  share::Exposed send{}, receive{};
};

/// True where mapping the application's buffers pays: only then a side has to show them.
[[nodiscard]] bool worth_exposing(const Shape& shape, int members) noexcept;

class Blocking {
 public:
  Blocking(const Choice& choice, engine::Engine& engine, double watchdog_seconds) noexcept
      : choice_(choice), engine_(engine), watchdog_seconds_(watchdog_seconds) {}

  /// Returns when this rank's part is complete: its buffers may be used again and hold the result. Throws Error (other) naming the
  /// member that did not take part within the limit, and where the GPU fails. The verdict of the team for this call is `direct`.
  /// Returns the algorithm that ran, a row of the catalogue.
  const Algorithm& run(team::Team& team, const Shape& shape, const Side& mine, const engine::Watch& watch) const;

 private:
  const Choice& choice_;
  engine::Engine& engine_;
  double watchdog_seconds_;
};

}  // namespace crosslane::collective
