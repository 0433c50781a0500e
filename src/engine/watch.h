// Watch: what a blocking wait is for, so that the watchdog can name it, and how to find out that it is in vain;
// Watchdog: notices that nothing moves. It must not end a wait of its own will: it only reports.
#pragma once

#include "base/clock.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace crosslane::engine {

/// What a wait is for. Built on the way of a fast call: views and pointers only, asked when there is something to report.
struct Watch {
  std::string_view call{};          ///< The MPI procedure or the library's own step, e.g. "MPI_Allreduce".
  std::string_view communicator{};  ///< Its name, if there is one.
  std::uint64_t sequence = 0;       ///< The call's number on the communicator, from 1; 0: not numbered.
  int peer = -1;                    ///< The rank waited for in the communicator; negative: none or several.
  /// More, e.g. "missing ranks 1, 4", or nothing; asked only when it reports.
  std::string (*details)(const void* context) = nullptr;
  std::string (*name)(const void* context) = nullptr;  ///< The communicator's name where MPI has to be asked for it.
  const void* context = nullptr;                       ///< What `details` and `name` are given.
  double within = 0;  ///< Seconds after which the first report is due, where it reports at all; 0: as the others.
  /// Asked about once a second: throws where what is waited for can never happen, which a word alone does not tell (a
  /// GPU that failed writes none). The error ends the wait.
  void (*check)(const void* checked) = nullptr;
  const void* checked = nullptr;  ///< What `check` is given.
  /// Grows as the wait goes on otherwise than by the engine's turns; read by the thread that waits.
  const std::uint64_t* events = nullptr;
};

/// The line without the time: "MPI_Allreduce on MPI_COMM_WORLD, call 17: missing ranks 1, 4".
std::string describe(const Watch& watch);

class Watchdog {
 public:
  /// Reports every `seconds` without progress; never if that is 0. `watch` must outlive it.
  Watchdog(const Watch& watch, double seconds) noexcept
      : watch_(watch), seconds_(seconds), due_(seconds > 0 && watch.within > 0 ? watch.within : seconds) {}

  /// Tells whether something moved since the last look; logs a line (Topic::error) when nothing did for long enough.
  /// Throws what Watch::check throws.
  void look(bool moved);

 private:
  const Watch& watch_;
  const double seconds_;
  double due_;             // seconds from the last report on
  unsigned looks_ = 0;     // the clock is asked only now and then
  bool moved_ = true;      // since the clock was last asked
  base::Time last_{};      // when the clock was last asked and something had moved
  base::Time reported_{};  // the last report, or last_ if that is later
  base::Time checked_{};   // the last check, or the first look
};

}  // namespace crosslane::engine
