/* A profiling tool of the usual kind, loaded before or after Crosslane: counts calls, passes them on by PMPI.
 * It must not know Crosslane. */
#include <mpi.h>

struct ToolCounts {
  int send, receive, allreduce;
};
__attribute__((visibility("default"))) struct ToolCounts preloaded_tool_counts;

__attribute__((visibility("default"))) int MPI_Send(const void* buf, int count, MPI_Datatype type, int to, int tag,
                                                    MPI_Comm comm) {
  ++preloaded_tool_counts.send;
  return PMPI_Send(buf, count, type, to, tag, comm);
}
__attribute__((visibility("default"))) int MPI_Recv(void* buf, int count, MPI_Datatype type, int from, int tag,
                                                    MPI_Comm comm, MPI_Status* status) {
  ++preloaded_tool_counts.receive;
  return PMPI_Recv(buf, count, type, from, tag, comm, status);
}
__attribute__((visibility("default"))) int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type,
                                                         MPI_Op op, MPI_Comm comm) {
  ++preloaded_tool_counts.allreduce;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
