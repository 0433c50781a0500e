// The functions of crosslane.h: arguments put in order, errors raised on the communicator.
#include "base/error.h"
#include "base/log.h"
#include "interpose/exports.h"
#include "interpose/native.h"
#include "mpi/abi.h"

#include <exception>

#define CROSSLANE_WITHOUT_MPI_H
#include <crosslane/crosslane.h>

namespace crosslane::interpose {
namespace {

using collective::Collective;

int guarded(const char* call, MPI_Comm comm, base::FunctionRef<void(Process&)> body) {
  Process& process = Process::get();
  const Nested nested;
  if (!mpi::world_exists(process.next(Level::pmpi))) {
    base::log(base::Topic::error, "{}: MPI is not initialized, or finalized already", call);
    return mpi::error_class(base::ErrorClass::other);
  }
  const bool null = comm == process.library().handles().comm_null;
  const Target target = null ? Target::self() : Target::of_comm(comm);
  try {
    if (null) throw base::Error(base::ErrorClass::comm, "argument comm is MPI_COMM_NULL");
    body(process);
    return mpi::success;
  } catch (...) {
    return raise_caught(process, target, call);
  }
}

int enqueue(const CollectiveCall& call, CUstream stream) {
  return guarded(call.call, call.comm, [&](Process& process) { native::enqueue(process, call, stream); });
}

int reduction(const char* name, Collective collective, const void* send, void* receive, MPI_Count count,
              MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, CUstream stream) {
  return enqueue({.call = name,
                  .collective = collective,
                  .send = send,
                  .receive = receive,
                  .receive_count = count,
                  .receive_type = type,
                  .op = op,
                  .root = root,
                  .comm = comm},
                 stream);
}

struct Side {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
  BlockArrays blocks = {};
};
int movement(const char* name, Collective collective, const Side& send, const Side& receive, int root, MPI_Comm comm,
             CUstream stream) {
  return enqueue({.call = name,
                  .collective = collective,
                  .send = send.buffer,
                  .send_count = send.count,
                  .send_type = send.type,
                  .receive = const_cast<void*>(receive.buffer),
                  .receive_count = receive.count,
                  .receive_type = receive.type,
                  .send_blocks = send.blocks,
                  .receive_blocks = receive.blocks,
                  .root = root,
                  .comm = comm},
                 stream);
}

}  // namespace
}  // namespace crosslane::interpose

using namespace crosslane::interpose;

extern "C" {

int crosslane_prepare(MPI_Comm comm, MPI_Count bytes, int count, void* const buffers[]) {
  return guarded("crosslane_prepare", comm,
                 [&](Process& process) { native::prepare(process, comm, bytes, count, buffers); });
}

int crosslane_status(MPI_Comm comm, int* missing) {
  return guarded("crosslane_status", comm, [&](Process& process) {
    if (missing == nullptr)
      throw crosslane::base::Error(crosslane::base::ErrorClass::argument, "argument missing is null");
    *missing = native::missing(process, comm);
  });
}

int crosslane_allreduce_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                                MPI_Comm comm, CUstream stream) {
  return reduction("crosslane_allreduce_enqueue", Collective::allreduce, sendbuf, recvbuf, count, datatype, op, 0, comm,
                   stream);
}

int crosslane_reduce_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                             int root, MPI_Comm comm, CUstream stream) {
  return reduction("crosslane_reduce_enqueue", Collective::reduce, sendbuf, recvbuf, count, datatype, op, root, comm,
                   stream);
}

int crosslane_reduce_scatter_block_enqueue(const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                           MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, CUstream stream) {
  return reduction("crosslane_reduce_scatter_block_enqueue", Collective::reduce_scatter_block, sendbuf, recvbuf,
                   recvcount, datatype, op, 0, comm, stream);
}

int crosslane_scan_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                           MPI_Comm comm, CUstream stream) {
  return reduction("crosslane_scan_enqueue", Collective::scan, sendbuf, recvbuf, count, datatype, op, 0, comm, stream);
}

int crosslane_exscan_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm, CUstream stream) {
  return reduction("crosslane_exscan_enqueue", Collective::exscan, sendbuf, recvbuf, count, datatype, op, 0, comm,
                   stream);
}

int crosslane_broadcast_enqueue(void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                                CUstream stream) {
  return movement("crosslane_broadcast_enqueue", Collective::broadcast, {}, {buffer, count, datatype}, root, comm,
                  stream);
}

int crosslane_allgather_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_allgather_enqueue", Collective::allgather, {sendbuf, sendcount, sendtype},
                  {recvbuf, recvcount, recvtype}, 0, comm, stream);
}

int crosslane_alltoall_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                               MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_alltoall_enqueue", Collective::alltoall, {sendbuf, sendcount, sendtype},
                  {recvbuf, recvcount, recvtype}, 0, comm, stream);
}

int crosslane_gather_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                             MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_gather_enqueue", Collective::gather, {sendbuf, sendcount, sendtype},
                  {recvbuf, recvcount, recvtype}, root, comm, stream);
}

int crosslane_scatter_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_scatter_enqueue", Collective::scatter, {sendbuf, sendcount, sendtype},
                  {recvbuf, recvcount, recvtype}, root, comm, stream);
}

int crosslane_reduce_scatter_enqueue(const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[],
                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, CUstream stream) {
  return enqueue({.call = "crosslane_reduce_scatter_enqueue",
                  .collective = Collective::reduce_scatter,
                  .send = sendbuf,
                  .send_type = datatype,
                  .receive = recvbuf,
                  .receive_type = datatype,
                  .receive_blocks = recvcounts,
                  .op = op,
                  .comm = comm},
                 stream);
}

int crosslane_allgatherv_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                                 const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
                                 MPI_Comm comm, CUstream stream) {
  return movement("crosslane_allgatherv_enqueue", Collective::allgatherv, {sendbuf, sendcount, sendtype},
                  {recvbuf, 0, recvtype, {recvcounts, displs}}, 0, comm, stream);
}

int crosslane_alltoallv_enqueue(const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
                                MPI_Datatype sendtype, void* recvbuf, const MPI_Count recvcounts[],
                                const MPI_Aint rdispls[], MPI_Datatype recvtype, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_alltoallv_enqueue", Collective::alltoallv, {sendbuf, 0, sendtype, {sendcounts, sdispls}},
                  {recvbuf, 0, recvtype, {recvcounts, rdispls}}, 0, comm, stream);
}

int crosslane_gatherv_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                              const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype, int root,
                              MPI_Comm comm, CUstream stream) {
  return movement("crosslane_gatherv_enqueue", Collective::gatherv, {sendbuf, sendcount, sendtype},
                  {recvbuf, 0, recvtype, {recvcounts, displs}}, root, comm, stream);
}

int crosslane_scatterv_enqueue(const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint displs[],
                               MPI_Datatype sendtype, void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                               int root, MPI_Comm comm, CUstream stream) {
  return movement("crosslane_scatterv_enqueue", Collective::scatterv, {sendbuf, 0, sendtype, {sendcounts, displs}},
                  {recvbuf, recvcount, recvtype}, root, comm, stream);
}

int crosslane_barrier_enqueue(MPI_Comm comm, CUstream stream) {
  return enqueue({.call = "crosslane_barrier_enqueue", .collective = Collective::barrier, .comm = comm}, stream);
}

}  // extern "C"
