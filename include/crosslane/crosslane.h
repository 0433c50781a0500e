/* Crosslane's own API: collectives that a CUDA stream triggers. Each takes MPI's arguments and a stream, enqueues the whole call
   there and returns; the call starts when the stream gets there, and the host waits for nobody. docs/native.md has an example.

   For C and C++: there is no module for Fortran, nor a package for Python.

   Link with libcrosslane_openmpi.so or libcrosslane_mpich.so, named ahead of MPI, or preload it (`crosslane run`). */
#ifndef CROSSLANE_CROSSLANE_H
#define CROSSLANE_CROSSLANE_H

/* Whoever defines this has declared MPI's types by other means. */
#ifndef CROSSLANE_WITHOUT_MPI_H
#include <mpi.h>
#endif
#include <stdint.h>

#define CROSSLANE_API __attribute__((visibility("default")))

/* cuda.h's CUstream and the runtime's cudaStream_t are pointers to this. A null pointer, like CU_STREAM_LEGACY, is the legacy
   default stream; say CU_STREAM_PER_THREAD for a thread's own one, also in code that is compiled for per-thread default streams.
   Both are the current context's: MPI_ERR_ARG where that is not the one that the communicator was prepared with. Where none is current
   they are of that one. */
struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator ready for the calls below. Collective over `comm`, and blocking: it maps memory and exchanges where it is.

   bytes     of the largest buffer of a later call, 0 if unknown. It only sizes library memory: larger calls go in more parts. Only
             a communicator's first preparation counts. The same on all ranks.
   count     of `buffers`. The same on all ranks.
   buffers   addresses of device memory that later calls will use, each for what lies from there to the end of its allocation; may
             be null where count is 0. Large calls with them (from 16 KiB) go straight between the ranks' buffers, without copies
             through library memory. They take the place of those of an earlier preparation of the communicator.

   What is promised by naming buffers:
   - They live, on every rank, until a later preparation without them, or the end of the communicator. By then no call with them is
     under way, and no graph of such calls is launched any more.
   - Buffers of the same index belong together: where a call uses buffers[i] on one rank, every rank passes its buffers[i] in
     the same argument, at the same offset from its start. What lies in several of them is meant to be in the one that begins last
     before it. (Of reduces and gathers only the root passes a receive buffer: whichever it likes; what is reduced, and what a
     scatter brings, may be in any of them, anywhere. Scans and the v forms go through library memory.)
   Memory that other processes cannot map (stream-ordered pools, virtual memory management) may be named, and is then used as any.

   It takes some 7 to 9 MiB of GPU memory, of 512 MiB that a rank has for all communicators; for `bytes` of 4 MiB and more, or 0, a
   large window besides, as long as there is room (12 MiB a rank, 96 at most).

   The GPU is that of the first buffer, else the current context's, unless the process already takes part in collectives with
   another one. A communicator of one rank can be prepared anywhere, also without a GPU.

   Errors, on all ranks where one alone has a reason (but MPI_ERR_COMM):
   MPI_ERR_UNSUPPORTED_OPERATION  calls cannot go between the GPUs: several nodes, inter-communicators, communicators of sessions, more
                                  than 32 ranks, ranks that share a GPU without MPS, no GPU, a process that takes part with another GPU
                                  or context; or Crosslane is switched off, or CROSSLANE_WORLD=partial
   MPI_ERR_COMM    MPI_COMM_NULL, or no communicator
   MPI_ERR_COUNT   bytes or count is negative
   MPI_ERR_ARG     bytes or count differ between ranks; buffers is null, and count is not 0
   MPI_ERR_BUFFER  a buffer is not device memory, or, among several ranks, that of another GPU or context than the first
   MPI_ERR_NO_MEM  memory of the GPU, or a place among the node's communicators, is not to be had
   MPI_ERR_OTHER   no CUDA context is current, and no buffer is named; or the driver fails. Outside of MPI_Init and MPI_Finalize: returned
                   without an error handler, by all functions here that take a communicator
   They go through the communicator's error handler; where that returns (MPI_ERRORS_RETURN), MPI_Error_string gives the reason, and
   the communicator is as it was before. */
CROSSLANE_API int crosslane_prepare(MPI_Comm comm, MPI_Count bytes, int count, void* const buffers[]);

/* Has a kernel of an enqueued call given up? Each waits for its peers' at most ten times CROSSLANE_WATCHDOG_S (0: for ever). Then
   *missing is the rank for which one waited in vain, results since then are undefined, and the communicator takes no more
   enqueued calls; else it is -1, also where the communicator was not prepared. Local, and may be asked at any time. Errors:
   MPI_ERR_ARG where missing is null, MPI_ERR_COMM for MPI_COMM_NULL, MPI_ERR_UNSUPPORTED_OPERATION for an inter-communicator. */
CROSSLANE_API int crosslane_status(MPI_Comm comm, int* missing);

/* How many collectives of this process went directly between GPUs, by `algorithm` ("two_shot"; null: by any), as
   docs/collectives.md names them: `collective` is "allreduce", ... Enqueued calls count when they are enqueued, once in a graph.
   0 outside of MPI_Init and MPI_Finalize, where `collective` is null, and for unknown names ("bcast": it is "broadcast"). This and the
   functions below may be called from any thread. */
CROSSLANE_API uint64_t crosslane_direct_calls(const char* collective, const char* algorithm);

/* How many of these took no launch on this rank, for a kernel had stayed from the call before (docs/collectives.md, CROSSLANE_LINGER_US).
   0 outside of MPI_Init and MPI_Finalize. */
CROSSLANE_API uint64_t crosslane_rung_calls(void);

/* How many messages to this rank were read by a kernel that had stayed from a message before (docs/messages.md, CROSSLANE_LINGER_US).
   0 outside of MPI_Init and MPI_Finalize. */
CROSSLANE_API uint64_t crosslane_carried_messages(void);

/* How many messages of this rank it wrote to where they belong, rather than that their receivers read them (docs/messages.md,
   CROSSLANE_PUT_BYTES). 0 outside of MPI_Init and MPI_Finalize. */
CROSSLANE_API uint64_t crosslane_written_messages(void);

/* How many long messages to this rank, which waited for several, were held until others of them were over; and how many it had asked their
   senders to write, and then read after all, as these did not come, or had no room on their GPUs, or it went itself (docs/messages.md,
   CROSSLANE_PUT_BYTES). 0 outside of MPI_Init and MPI_Finalize. */
CROSSLANE_API uint64_t crosslane_held_messages(void);
CROSSLANE_API uint64_t crosslane_taken_back_messages(void);

/* The collectives. Arguments are those of MPI's procedures of the same names, with counts of any size, and mean the same.

   Room.      While calls wait for their peers they keep thread blocks of the GPU (of 512 threads, of which we count two a
              multiprocessor): of most communicators a quarter of them at most, of one that was prepared while no other had as much,
              half, if no two of its ranks share a GPU. So calls of three communicators can wait at the same time whatever the order in which GPUs come to them; of more,
              only if streams or events order them alike on all ranks. MPI's own calls take turns in what all prepared communicators
              leave, at least one at a time.
   Threads.   From any thread, as far as MPI's level allows (MPI_Init_thread). Calls on one communicator are not to be made at the same
              time, since their order counts; on different ones they may.
   Order.     All ranks enqueue the same calls on a communicator in the same order, and their streams run them in that order: on
              one stream, or on several that the application orders by events. Graphs count by their launches. Calls of different
              communicators, and MPI's own calls on the same one, are apart from each other; but ranks must not wait in opposite
              orders: where one rank enqueues first and then calls MPI, none may call MPI first and wait in it before it enqueues.
   Waiting.   Nobody waits on a host. On the GPU a call waits for its peers' calls, and occupies part of the GPU while it does: what
              waits for all of that GPU (cudaFree, cudaMalloc, cudaDeviceSynchronize, loading a kernel for the first time) between
              a call and its peers' calls may hang, if those only come later.
   Graphs.    They may be captured, and the graph launched any number of times, on all ranks alike. Nothing is counted on hosts.
   Buffers.   Device memory of the GPU that the communicator was prepared with, contiguous (derived datatypes without gaps will do),
              the rank's own until the stream is past the call, for captured calls as long as the graph is launched. No host or
              managed memory, no memory of another GPU: MPI_ERR_BUFFER.
   In place.  MPI_IN_PLACE where MPI allows it (MPI_ERR_BUFFER otherwise). Other overlaps are wrong, as in MPI.
   Reductions Predefined operations and types, as MPI defines them (MPI_ERR_OP, MPI_ERR_TYPE otherwise: truth values such as
              MPI_C_BOOL have logical operations alone, MPI_BYTE those on bits), in rank order, or, of large
              arrays, in ranks' order from another one on in each part (not where CROSSLANE_DETERMINISTIC=1): all ranks get the same
              bits, from run to run.
   Errors.    Wrong arguments are told at once, through the communicator's error handler, and then nothing was enqueued. What goes
              wrong later is seen by crosslane_status, and by the stream. Beside the classes above:
              MPI_ERR_COMM      the communicator was never prepared (one of a single rank need not be), or is MPI_COMM_NULL
              MPI_ERR_ROOT      root is no rank of the communicator
              MPI_ERR_COUNT     a count is negative, or its bytes are more than 63 bits count; a rank sends to itself fewer bytes than
                                it is to receive from itself
              MPI_ERR_TRUNCATE  or more bytes: they must be as many
              MPI_ERR_ARG       an array of counts or displacements is null, a displacement reaches farther than 63 bits, or the stream is of
                                another GPU or context than the communicator was prepared with (one of a single rank: than what it
                                receives), as a default stream is while another context is current
              MPI_ERR_TYPE      also a datatype that is null, not committed or has gaps
              MPI_ERR_OTHER     a peer was given up (crosslane_status names it), the context of the preparation is gone, or the driver
                                fails
              MPI_ERR_UNSUPPORTED_OPERATION  an inter-communicator, no CUDA driver in the process, or MPI_IN_PLACE as said below
   The end.   Before MPI_Comm_free and MPI_Finalize all ranks' streams must be past all calls on the communicator. */
CROSSLANE_API int crosslane_allreduce_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count,
                                              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                              struct CUstream_st* stream);
CROSSLANE_API int crosslane_reduce_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                                           MPI_Op op, int root, MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_broadcast_enqueue(void* buffer, MPI_Count count, MPI_Datatype datatype, int root,
                                              MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_allgather_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                                              struct CUstream_st* stream);
CROSSLANE_API int crosslane_reduce_scatter_block_enqueue(const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                                         MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                                         struct CUstream_st* stream);
CROSSLANE_API int crosslane_alltoall_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                             void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                                             struct CUstream_st* stream);
CROSSLANE_API int crosslane_gather_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                           void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
                                           MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_scatter_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                            void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
                                            MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_scan_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                                         MPI_Op op, MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_exscan_enqueue(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                                           MPI_Op op, MPI_Comm comm, struct CUstream_st* stream);

/* The same with blocks of different sizes; counts and displacements as in MPI's large-count forms (MPI_Alltoallv_c), read before the
   call returns. A rank of gatherv, scatterv and alltoallv knows only its own sizes: these go in chunks from pair to pair, through
   library memory. reduce_scatter takes MPI_IN_PLACE where all blocks are of one size (MPI_ERR_UNSUPPORTED_OPERATION otherwise). */
CROSSLANE_API int crosslane_reduce_scatter_enqueue(const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[],
                                                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                                   struct CUstream_st* stream);
CROSSLANE_API int crosslane_allgatherv_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                               void* recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
                                               MPI_Datatype recvtype, MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_alltoallv_enqueue(const void* sendbuf, const MPI_Count sendcounts[],
                                              const MPI_Aint sdispls[], MPI_Datatype sendtype, void* recvbuf,
                                              const MPI_Count recvcounts[], const MPI_Aint rdispls[],
                                              MPI_Datatype recvtype, MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_gatherv_enqueue(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
                                            void* recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
                                            MPI_Datatype recvtype, int root, MPI_Comm comm, struct CUstream_st* stream);
CROSSLANE_API int crosslane_scatterv_enqueue(const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint displs[],
                                             MPI_Datatype sendtype, void* recvbuf, MPI_Count recvcount,
                                             MPI_Datatype recvtype, int root, MPI_Comm comm,
                                             struct CUstream_st* stream);

/* What follows on the streams of all ranks comes after what was before it on any of them. The host waits for nobody: MPI_Barrier is for
   that. */
CROSSLANE_API int crosslane_barrier_enqueue(MPI_Comm comm, struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif
