// The cases of which the random programs consist, one call each on all ranks. None knows of another.
#pragma once

#include "point_to_point/short/ring.h"

#include <cstddef>

namespace crosslane::tests {

// Messages from any rank to any, over every communicator: traffic.cpp.

/// Sends of every rank to any, begun by calls that do not wait; receives partly posted before, and by every way after.
void traffic(Ring& ring);
/// One rank sends by calls that wait, another receives in that order.
void one_way(Ring& ring);
/// All receives are posted, so every mode may be used, and no call waits for long.
void blocking_sends(Ring& ring);

// Each rank sends to its right and receives from its left: neighbours.cpp.

/// A probe finds a longer message behind short ones, which are received afterwards, by every way and in any order.
void probed_past(Ring& ring);
/// Both in one call. --isendrecv 0 leaves MPI_Isendrecv and MPI_Isendrecv_replace out.
void exchange(Ring& ring);
/// Receives that nothing matches, and a send that may be received.
void cancelled(Ring& ring);
/// More messages under way than anything is likely to keep an account of, received in any order.
void flood(Ring& ring);
/// Messages outlive the handle of their communicator; another may have its value.
void freed_communicator(Ring& ring);

// Receives with too little room, from the left: truncation.cpp.

/// Some receives are too short; messages of the same tag that follow are whole.
void truncation(Ring& ring);
/// Whether the MPI by itself gets these wrong.
[[nodiscard]] bool loses_truncations();

// No case of a random program: patches.cpp.

/// Rank 0 sends to rank 1 in turns from more allocations than it can say of that they live (share/exposure.h); then from others where
/// those lay. `uses`: what CROSSLANE_EXPORT_USES says, or 1 where allocations of any size are read from the first message on. Returns how many
/// calls of this rank are to go directly.
struct Directly {
  int least, most;
};
Directly send_patches(Program& program, std::size_t patches, int uses);

}  // namespace crosslane::tests
