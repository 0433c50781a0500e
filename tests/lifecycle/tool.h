// The counts that a PMPI tool keeps of the calls it sees; the static tool, the preloaded tool and the test share it.
// It must not know Crosslane.
#pragma once

/// Calls seen of MPI_Send, MPI_Recv and MPI_Allreduce, one after the other.
struct ToolCounts {
  int send, receive, allreduce;
};
