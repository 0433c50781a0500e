// What the MPIs of Debian 12 get wrong in one-sided communication by themselves, as this program has found with --memory host and nothing
// preloaded: left out for the MPI that has it, and nothing else. It must not know CUDA or Crosslane.
#pragma once

#include "support/program.h"

namespace crosslane::tests {

struct LeftOut {
  // MPICH 4.0.2 (ch4:ucx):
  /// MPI_Win_start counts posts whoever they are from: one for a later epoch makes it hang.
  bool early_posts = false;
  /// A window begins at the last multiple of 16 before its base, or where memory around it begins that is a window already.
  bool window_bases = false;
  /// MPI_Rget is complete before its data are there, where either datatype has gaps.
  bool rget_with_gaps = false;
  /// MPI_Win_flush_local and MPI_Win_flush_local_all do not complete an MPI_Get that came before an MPI_Put.
  bool flush_local_of_gets = false;

  // MPICH 4.0.2; Open MPI 4.1.4, of eight bytes, with vector instructions:
  /// Unsigned numbers are compared as if they were signed.
  bool unsigned_as_signed = false;

  // MPICH 4.0.2, where that target's locks are never given back from then on; Open MPI 4.1.4, osc/pt2pt, which hangs in these locks:
  bool nocheck_locks = false;

  // Open MPI 4.1.4, osc/rdma, which is Debian's default, and osc/pt2pt:
  /// MPI_Get_accumulate gives or takes wrong bytes, unless all its datatypes are predefined.
  bool get_accumulate_of_derived = false;
  /// Accumulates into a datatype with a negative lower bound change bytes before the target, too (osc/pt2pt).
  bool accumulates_below_address = false;

  /// Sums of numbers of one or two bytes stay at the largest number, with vector instructions, rather than wrap around.
  bool sums_saturate = false;
  /// MPI_Finalize may hang where windows are left that threads have made in another order on another rank.
  bool forgotten_windows = false;

  // Open MPI 4.1.4, osc/rdma:
  /// MPI_Get_accumulate of more than 4 KiB by any operation but MPI_NO_OP tells wrong bytes behind them.
  bool get_accumulate_of_much = false;
  /// MPI_Win_create finds nothing that serves a communicator of one rank.
  bool communicators_of_one = false;
  /// MPI_Compare_and_swap and MPI_Fetch_and_op crash where the target is the rank itself.
  bool atomics_on_oneself = false;
  /// A displacement of 0 is out of a dynamic window's range, whatever addresses the datatype has.
  bool absolute_targets = false;

  // Open MPI 4.1.4, osc/pt2pt:
  /// MPI_Win_flush_local and MPI_Win_flush_local_all hang.
  bool flush_local = false;
  /// MPI_Win_unlock hangs while the lock of another target is held.
  bool several_locks = false;
  /// What goes to MPI_PROC_NULL under a lock is counted as something to wait for.
  bool proc_null_under_lock = false;
  /// Accumulates that have to wait for other ranks' are overtaken by later ones to the same place.
  bool accumulates_in_order = false;
};

/// --left-out <name>,<name>... instead of what is known of this MPI, to find out more; "none" is a name, too.
void leave_out(const Program& program);
[[nodiscard]] const LeftOut& left_out();

}  // namespace crosslane::tests
