// How a rank begins: what it has received, or posted, before it receives GPU memory for the first time, and what comes of that. It must
// not know the cases that follow.
#pragma once

#include "point_to_point/short/ring.h"
#include "point_to_point/short/standing.h"
#include "support/layout.h"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace crosslane::tests {

/// What a rank does before its first GPU receive.
enum class Begin {
  nothing,        ///< Nothing but what the test itself needs.
  blocking,       ///< Host receives that were over when their calls returned.
  other_lengths,  ///< Pending host receives with room for less or more.
  persistent,     ///< Persistent host receives, one of them started and pending.
  pending,        ///< Pending host receives of such lengths.
  pending_with_gaps,
  completed,  ///< Nonblocking host receives that have completed, or were cancelled.
  ways
};

class Beginning {
 public:
  /// All ranks begin as number `begin`, or if that is negative each by a draw.
  Beginning(Ring& ring, int begin);

  /// Up to the first GPU receive and past it.
  void run(Standing& standing);
  /// At any time after it, once: what was posted before is sent and received.
  void complete_early();

 private:
  /// A host receive that is posted before the first GPU receive and completed after it.
  struct Early {
    std::size_t room, bytes;
    std::uint64_t seed;
    bool gaps;
    std::optional<TypedBuffer> buffer;
    MPI_Request request = MPI_REQUEST_NULL;
    bool persistent = false;
  };

  static constexpr int first_tag = 20000;  // one each

  [[nodiscard]] std::vector<Early> draw_early(int rank) const;
  void post_early();
  void receive_at_once();
  void first_gpu_receive();

  Ring& ring_;
  std::vector<Begin> begins_;  // of every rank
  std::vector<Early> early_;
};

}  // namespace crosslane::tests
