// What the MPI of this machine gets wrong by itself, found by trying it out: in this process, on host memory, by calls
// that go to the MPI's own library past whatever is preloaded. Tests leave out what is wrong there, and nothing else.
// It must not know Crosslane.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace crosslane::tests {

struct PlainMpi {
  /// MPI_Request_get_status makes a complete persistent receive inactive: its status and its being cancelled are lost.
  bool query_ends_persistent = false;
  /// MPI_Testall of persistent collectives fails with MPI_ERR_IN_STATUS.
  bool testall_fails_on_persistent_collectives = false;
  /// Other completion calls on arrays report persistent collectives that are inactive already.
  bool arrays_report_persistent_collectives_again = false;
  /// Persistent collectives read a rank's own block when they are made instead of when they start.
  bool persistent_collectives_read_too_early = false;
};

/// Tried out on first use, on MPI_COMM_SELF; rank 0 prints what is wrong.
const PlainMpi& plain_mpi();

/// Whether partitions of elements with gaps are taken from wrong places. Prints if so.
bool plain_mpi_partitions_lose_gaps();

/// Whether a buffered persistent send that was delivered sends something else when it is started again. Needs that no
/// buffer is attached. Prints if so.
bool plain_mpi_buffered_sends_start_once();

/// Whether what a rank sends to itself in a collective ends too soon, where its elements have gaps and take part of the last
/// of several pieces. Prints if so.
bool plain_mpi_copies_to_itself_end_early();

/// The lengths in bytes, of those near powers of two, at which a receive with gaps between elements of 16 bytes calls a
/// synchronous message truncated that fits. Collective over MPI_COMM_WORLD; rank 0 prints if there are any.
std::vector<std::size_t> plain_mpi_lengths_taken_for_truncated();

/// Whether MPI_Win_create and a fence work on host memory. Collective; rank 0 prints if not.
bool plain_mpi_has_windows(MPI_Comm communicator);

/// A duplicate that the MPI makes past whatever is preloaded. Collective.
MPI_Comm plain_mpi_duplicate(MPI_Comm communicator);

}  // namespace crosslane::tests
