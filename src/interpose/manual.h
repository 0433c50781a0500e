// The hand-written routes: calls that are more than host copies around one call of the MPI. The generated wrappers call
// them by the names in tools/generate/routes.py.
#pragma once

#include "base/function_ref.h"
#include "interpose/process.h"
#include "interpose/target.h"
#include "mpi/abi.h"

namespace crosslane::interpose::manual {

// process.cpp: the life of the process (MPI 5.0, section 11.2).
int init(const Site& site, int* argc, char*** argv);
int init_thread(const Site& site, int* argc, char*** argv, int required, int* provided);
int session_init(const Site& site, MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session);
int error_string(const Site& site, int errorcode, char* string, int* resultlen);

// communicators.cpp: what ends communicators (section 7.4).
int comm_free(const Site& site, MPI_Comm* comm);
int comm_disconnect(const Site& site, MPI_Comm* comm);

// completion.cpp: every procedure that completes, queries or frees requests (MPI 5.0, section 3.7).
int wait(const Site& site, MPI_Request* request, MPI_Status* status);
int waitall(const Site& site, int count, MPI_Request requests[], MPI_Status statuses[]);
int waitany(const Site& site, int count, MPI_Request requests[], int* index, MPI_Status* status);
int waitsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
             MPI_Status statuses[]);
int test(const Site& site, MPI_Request* request, int* flag, MPI_Status* status);
int testall(const Site& site, int count, MPI_Request requests[], int* flag, MPI_Status statuses[]);
int testany(const Site& site, int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status);
int testsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
             MPI_Status statuses[]);
int request_free(const Site& site, MPI_Request* request);
int request_get_status(const Site& site, MPI_Request request, int* flag, MPI_Status* status);
int request_get_status_all(const Site& site, int count, const MPI_Request requests[], int* flag, MPI_Status statuses[]);
int request_get_status_any(const Site& site, int count, const MPI_Request requests[], int* index, int* flag,
                           MPI_Status* status);
int request_get_status_some(const Site& site, int incount, const MPI_Request requests[], int* outcount, int indices[],
                            MPI_Status statuses[]);

// receive.cpp, sendrecv.cpp: receives on a rank that looks at what it receives (MPI 5.0, sections 3.2, 3.7, 3.9 and 3.11).
int recv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag,
         MPI_Comm comm, MPI_Status* status);
int irecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request* request);
int recv_init(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
              int tag, MPI_Comm comm, MPI_Request* request);
int sendrecv(const Site& site, const char* call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
             int dest, int sendtag, void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
             MPI_Comm comm, MPI_Status* status);
int sendrecv_replace(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                     int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status* status);
int isendrecv(const Site& site, const char* call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
              int dest, int sendtag, void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
              MPI_Comm comm, MPI_Request* request);
int isendrecv_replace(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                      int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Request* request);

// probe.cpp: probes, matched receives and MPI_Cancel there (section 3.8).
int mrecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
          MPI_Status* status);
int imrecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
           MPI_Request* request);
int probe(const Site& site, int source, int tag, MPI_Comm comm, MPI_Status* status);
int iprobe(const Site& site, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status);
int mprobe(const Site& site, int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status);
int improbe(const Site& site, int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status);
int cancel(const Site& site, MPI_Request* request);

// sending.cpp: sends of GPU memory (sections 3.4, 3.7 and 3.9).
enum class Mode { standard, synchronous, ready };
int send(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
         int dest, int tag, MPI_Comm comm);
int isend(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
          int dest, int tag, MPI_Comm comm, MPI_Request* request);
int send_init(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
              int dest, int tag, MPI_Comm comm, MPI_Request* request);

// start.cpp: persistent and partitioned operations (MPI 5.0, sections 3.9 and 4.2).
int start(const Site& site, MPI_Request* request);
int startall(const Site& site, int count, MPI_Request requests[]);
int partitioned_send_init(const Site& site, const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                          int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request);
int partitioned_receive_init(const Site& site, void* buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                             int source, int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request);
int pready(const Site& site, int partition, MPI_Request request);
int pready_range(const Site& site, int partition_low, int partition_high, MPI_Request request);
int pready_list(const Site& site, int length, const int partitions[], MPI_Request request);
int parrived(const Site& site, MPI_Request request, int partition, int* flag);

// files.cpp: what opens and closes files (MPI 5.0, section 14.2).
int file_open(const Site& site, MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* fh);
int file_close(const Site& site, MPI_File* fh);

// pack.cpp: MPI_Pack and its kin (MPI 5.0, section 5.2). `call` is the procedure's name; position is in bytes.
int pack(const Site& site, const char* call, const void* inbuf, MPI_Count incount, MPI_Datatype datatype, void* outbuf,
         MPI_Count outsize, MPI_Count* position, MPI_Comm comm);
int pack_external(const Site& site, const char* call, const char datarep[], const void* inbuf, MPI_Count incount,
                  MPI_Datatype datatype, void* outbuf, MPI_Count outsize, MPI_Count* position);
int unpack(const Site& site, const char* call, const void* inbuf, MPI_Count insize, MPI_Count* position, void* outbuf,
           MPI_Count outcount, MPI_Datatype datatype, MPI_Comm comm);
int unpack_external(const Site& site, const char* call, const char datarep[], const void* inbuf, MPI_Count insize,
                    MPI_Count* position, void* outbuf, MPI_Count outcount, MPI_Datatype datatype);

// attached_buffers.cpp: the buffers of buffered sends (MPI 5.0, section 3.6). `host` takes part in the call in place of `buffer`.
using Attach = base::FunctionRef<int(void* host)>;
int attach(const Site& site, const char* call, const Target& target, void* buffer, MPI_Count size, Attach attach);
using Detach = base::FunctionRef<int()>;
int detach(const Site& site, void* buffer_addr, Detach detach);

// split_collectives.cpp: the second halves of split collectives on files (MPI 5.0, section 14.4.5).
using End = base::FunctionRef<int(void* buf, MPI_Status* status)>;
int split_end(const Site& site, const char* call, MPI_File fh, const void* buf, MPI_Status* status, End end);

// one_sided.cpp: windows of which this rank's memory is on a GPU, and what completes one-sided accesses or synchronises windows
// (MPI 5.0, sections 12.2, 12.5 and 12.7). `call` is the procedure's name.
int win_create(const Site& site, const char* call, void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
               MPI_Comm comm, MPI_Win* win);
int win_create_dynamic(const Site& site, MPI_Info info, MPI_Comm comm, MPI_Win* win);
int win_attach(const Site& site, MPI_Win win, void* base, MPI_Aint size);
int win_detach(const Site& site, MPI_Win win, const void* base);
int win_free(const Site& site, MPI_Win* win);
int win_get_attr(const Site& site, MPI_Win win, int win_keyval, void* attribute_val, int* flag);
int win_fence(const Site& site, int assert, MPI_Win win);
int win_start(const Site& site, MPI_Group group, int assert, MPI_Win win);
int win_complete(const Site& site, MPI_Win win);
int win_post(const Site& site, MPI_Group group, int assert, MPI_Win win);
int win_wait(const Site& site, MPI_Win win);
int win_test(const Site& site, MPI_Win win, int* flag);
int win_lock(const Site& site, int lock_type, int rank, int assert, MPI_Win win);
int win_lock_all(const Site& site, int assert, MPI_Win win);
int win_unlock(const Site& site, int rank, MPI_Win win);
int win_unlock_all(const Site& site, MPI_Win win);
int win_flush(const Site& site, int rank, MPI_Win win);
int win_flush_all(const Site& site, MPI_Win win);
int win_flush_local(const Site& site, int rank, MPI_Win win);
int win_flush_local_all(const Site& site, MPI_Win win);
int win_sync(const Site& site, MPI_Win win);

}  // namespace crosslane::interpose::manual
