// Plan: a collective call ready to run: started on a stream, any number of times, it never waits for a host.
// It must not know how it was chosen.
#pragma once

#include "collective/shape.h"
#include "gpu/stream.h"
#include "kernel/team.h"
#include "share/board.h"
#include "team/lingerer.h"
#include "team/view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace crosslane::collective {

/// One rank's buffers: device memory of the team's GPU context, or mapped there; contiguous. Null where the collective does
/// not use one on this rank. `send` may be the place in `receive` where MPI_IN_PLACE says that the data is.
struct Buffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

/// What goes to each member and comes from it, where blocks may differ: offsets in bytes from the Buffers, which are null where all
/// blocks are empty. send[p] here is as long as receive[me] on p. A reduce_scatter sends every block, in the members' order and one
/// behind the other, and receives its own at most.
struct Pieces {
  struct Piece {
    std::size_t offset = 0, bytes = 0;
  };
  std::array<Piece, share::Board::most_members> send{}, receive{};
};

struct Call {
  Shape shape;
  Buffers mine;
  const team::TeamView& team;
  /// By member, as mapped here; empty unless the buffers are exposed. Where blocks may differ, `receive` is the place of what this
  /// rank sends there.
  std::span<const Buffers> all;
  const Pieces* pieces = nullptr;  ///< Only where blocks may differ.
  /// Of calls whose root alone has a receive buffer: where that may be, if it is one that all have mapped; else null.
  const kernel::Landing* landing = nullptr;
  const kernel::Parts* parts =
      nullptr;  ///< Of reduces and scatters: where the members' parts may be, in the same way; else null.
};

inline constexpr double for_ever = 1e9;  ///< Seconds: no wait is longer.

/// Of each wait for another rank, seconds: ten times as long as until the watchdog tells of it (0: never).
[[nodiscard]] constexpr double limit_of_waits(double watchdog_seconds) noexcept {
  constexpr double patience = 10, shortest = 1e-3;
  return watchdog_seconds > 0 ? std::clamp(watchdog_seconds * patience, shortest, for_ever) : for_ever;
}

/// Where the last kernel of a start reports that all is over, as the GPU knows it; null words: nowhere.
struct Report {
  std::uint64_t* done = nullptr;
  std::uint64_t value = 0;
  std::uint64_t* failed = nullptr;       ///< 1 + the member that did not come within the limit.
  std::uint64_t limit_ns = 0;            ///< Of each wait inside a kernel.
  const std::uint32_t* abort = nullptr;  ///< Ends these waits once it is not 0.

  /// Of kernels behind which others of the same start come.
  [[nodiscard]] Report of_earlier_ones() const noexcept {
    return {.failed = failed, .limit_ns = limit_ns, .abort = abort};
  }
};

class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  virtual ~Plan() = default;

  /// Enqueues the call; its context must be current. All members start their plans of a team in the same order. What the Call
  /// referred to may be gone by now, but for the connection that its team is a view of.
  virtual void start(gpu::StreamView stream, const Report& report) = 0;

  /// The same of one blocking call, by a kernel that stays for further ones. True: one that stays has taken the call.
  [[nodiscard]] virtual bool ring(team::Lingerer& /*lingerer*/, const Report& /*report*/) { return false; }
  /// Else a launch, in start()'s place, that then stays: false if there is none for it.
  [[nodiscard]] virtual bool linger(team::Lingerer& /*lingerer*/, gpu::StreamView /*stream*/,
                                    const Report& /*report*/) {
    return false;
  }

  /// How many launches start() enqueues that the team's region counts (kernel/team.h): nothing else comes behind them.
  [[nodiscard]] virtual std::uint64_t launches() const noexcept { return 1; }

  /// Thread blocks that it keeps on the GPU until other members' have come: the most of its launches. The same on all members.
  [[nodiscard]] virtual unsigned blocks() const noexcept = 0;
  /// As blocks(): nothing else is to run beside it on its members' GPUs.
  static constexpr unsigned whole_gpu = 1U << 20;
};

}  // namespace crosslane::collective
