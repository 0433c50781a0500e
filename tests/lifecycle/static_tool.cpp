// The same tool, linked into the program. It must not know Crosslane.
#include "lifecycle/tool.h"

#include <mpi.h>

extern "C" {
__attribute__((visibility("default"))) ToolCounts static_tool_counts{};

__attribute__((visibility("default"))) int MPI_Send(const void* buf, int count, MPI_Datatype type, int to, int tag,
                                                    MPI_Comm comm) {
  ++static_tool_counts.send;
  return PMPI_Send(buf, count, type, to, tag, comm);
}
__attribute__((visibility("default"))) int MPI_Recv(void* buf, int count, MPI_Datatype type, int from, int tag,
                                                    MPI_Comm comm, MPI_Status* status) {
  ++static_tool_counts.receive;
  return PMPI_Recv(buf, count, type, from, tag, comm, status);
}
__attribute__((visibility("default"))) int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type,
                                                         MPI_Op op, MPI_Comm comm) {
  ++static_tool_counts.allreduce;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
}
