// Open MPI's binary interface as C++ declarations: opaque handle types, the status, and all constants. Checked by
// tests/mpi against the real header; the values are the same in 4.0 to 5.0 (libmpi.so.40).
// It must not know <mpi.h>, nor Open MPI's predefined handles: those are data symbols, found at run time (handles.h).
#pragma once

#include <cstddef>
#include <cstdint>

using MPI_Aint = std::ptrdiff_t;
using MPI_Offset = long long;
using MPI_Count = long long;
using MPI_Fint = int;

using MPI_Comm = struct ompi_communicator_t*;
using MPI_Datatype = struct ompi_datatype_t*;
using MPI_Errhandler = struct ompi_errhandler_t*;
using MPI_File = struct ompi_file_t*;
using MPI_Group = struct ompi_group_t*;
using MPI_Info = struct ompi_info_t*;
using MPI_Op = struct ompi_op_t*;
using MPI_Request = struct ompi_request_t*;
using MPI_Message = struct ompi_message_t*;
using MPI_Win = struct ompi_win_t*;
using MPI_Session = struct ompi_instance_t*;

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int internal_cancelled;      // the MPI's own
  std::size_t internal_count;  // the MPI's own
};

struct MPI_F08_status {
  MPI_Fint MPI_SOURCE;
  MPI_Fint MPI_TAG;
  MPI_Fint MPI_ERROR;
  MPI_Fint internal[3];
};

#include "mpi/abi_callbacks.h"

namespace crosslane::mpi {

inline constexpr const char* family = "openmpi";
inline constexpr bool gets_complete_early = false;
inline constexpr bool local_flushes_leave_gets = false;

// Addresses with a meaning of their own.
inline void* in_place() noexcept { return reinterpret_cast<void*>(1); }
inline void* bottom() noexcept { return nullptr; }
inline MPI_Status* status_ignore() noexcept { return nullptr; }
inline MPI_Status* statuses_ignore() noexcept { return nullptr; }
inline int* errcodes_ignore() noexcept { return nullptr; }

// Ranks and tags.
inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;
inline constexpr int proc_null = -2;
inline constexpr int root = -4;
inline constexpr int undefined = -32766;

// Key values of predefined attributes.
inline constexpr int keyval_invalid = -1;
inline constexpr int tag_ub = 0;
inline constexpr int wtime_is_global = 3;
inline constexpr int universe_size = 6;
inline constexpr int appnum = 4;
inline constexpr int lastusedcode = 5;
inline constexpr int win_base = 7;
inline constexpr int win_size = 8;
inline constexpr int win_disp_unit = 9;
inline constexpr int win_create_flavor = 10;
inline constexpr int win_model = 11;

// Lengths of strings, with their final zero.
inline constexpr int max_error_string = 256;
inline constexpr int max_object_name = 64;
inline constexpr int max_processor_name = 256;
inline constexpr int max_library_version_string = 256;
inline constexpr int max_info_key = 36;
inline constexpr int max_info_val = 256;
inline constexpr int max_port_name = 1024;
inline constexpr int max_datarep_string = 128;

// Bytes that MPI_Bsend needs beyond the message.
inline constexpr int bsend_overhead = 128;

// Results of comparisons; topologies.
inline constexpr int ident = 0;
inline constexpr int congruent = 1;
inline constexpr int similar = 2;
inline constexpr int unequal = 3;
inline constexpr int graph = 2;
inline constexpr int cart = 1;
inline constexpr int dist_graph = 3;

// MPI_Comm_split_type.
inline constexpr int comm_type_shared = 0;

// Thread levels.
inline constexpr int thread_single = 0;
inline constexpr int thread_funneled = 1;
inline constexpr int thread_serialized = 2;
inline constexpr int thread_multiple = 3;

// Subarrays and distributed arrays.
inline constexpr int order_c = 0;
inline constexpr int order_fortran = 1;
inline constexpr int distribute_block = 0;
inline constexpr int distribute_cyclic = 1;
inline constexpr int distribute_none = 2;
inline constexpr int distribute_dflt_darg = -1;

// Type classes of MPI_Type_match_size.
inline constexpr int typeclass_real = 2;
inline constexpr int typeclass_integer = 1;
inline constexpr int typeclass_complex = 3;

// Files.
inline constexpr int mode_create = 1;
inline constexpr int mode_rdonly = 2;
inline constexpr int mode_wronly = 4;
inline constexpr int mode_rdwr = 8;
inline constexpr int mode_delete_on_close = 16;
inline constexpr int mode_unique_open = 32;
inline constexpr int mode_excl = 64;
inline constexpr int mode_append = 128;
inline constexpr int mode_sequential = 256;
inline constexpr int seek_set = 600;
inline constexpr int seek_cur = 602;
inline constexpr int seek_end = 604;
inline constexpr MPI_Offset displacement_current = -54278278;

// Windows.
inline constexpr int mode_nocheck = 1;
inline constexpr int mode_noprecede = 2;
inline constexpr int mode_noput = 4;
inline constexpr int mode_nostore = 8;
inline constexpr int mode_nosucceed = 16;
inline constexpr int lock_exclusive = 1;
inline constexpr int lock_shared = 2;
inline constexpr int win_flavor_create = 1;
inline constexpr int win_flavor_allocate = 2;
inline constexpr int win_flavor_dynamic = 3;
inline constexpr int win_flavor_shared = 4;
inline constexpr int win_unified = 0;
inline constexpr int win_separate = 1;

// Error classes.
inline constexpr int success = 0;
inline constexpr int err_buffer = 1;
inline constexpr int err_count = 2;
inline constexpr int err_type = 3;
inline constexpr int err_tag = 4;
inline constexpr int err_comm = 5;
inline constexpr int err_rank = 6;
inline constexpr int err_request = 7;
inline constexpr int err_root = 8;
inline constexpr int err_group = 9;
inline constexpr int err_op = 10;
inline constexpr int err_topology = 11;
inline constexpr int err_dims = 12;
inline constexpr int err_arg = 13;
inline constexpr int err_unknown = 14;
inline constexpr int err_truncate = 15;
inline constexpr int err_other = 16;
inline constexpr int err_intern = 17;
inline constexpr int err_in_status = 18;
inline constexpr int err_pending = 19;
inline constexpr int err_file = 30;
inline constexpr int err_io = 35;
inline constexpr int err_info = 34;
inline constexpr int err_keyval = 36;
inline constexpr int err_name = 38;
inline constexpr int err_no_mem = 39;
inline constexpr int err_no_space = 41;
inline constexpr int err_not_same = 40;
inline constexpr int err_spawn = 50;
inline constexpr int err_unsupported_operation = 52;
inline constexpr int err_win = 53;
inline constexpr int err_base = 24;
inline constexpr int err_size = 49;
inline constexpr int err_disp = 26;
inline constexpr int err_assert = 22;
inline constexpr int err_locktype = 37;
inline constexpr int err_rma_conflict = 46;
inline constexpr int err_rma_sync = 47;
inline constexpr int err_rma_range = 68;
inline constexpr int err_rma_attach = 69;
inline constexpr int err_rma_shared = 71;
inline constexpr int err_rma_flavor = 70;
inline constexpr int err_lastcode = 92;

// Combiners: MPI_Type_get_envelope's answer, see combiner().
inline constexpr int combiner_named = 0;
inline constexpr int combiner_dup = 1;
inline constexpr int combiner_contiguous = 2;
inline constexpr int combiner_vector = 3;
inline constexpr int combiner_hvector = 5;
inline constexpr int combiner_indexed = 6;
inline constexpr int combiner_hindexed = 8;
inline constexpr int combiner_indexed_block = 9;
inline constexpr int combiner_hindexed_block = 18;
inline constexpr int combiner_struct = 11;
inline constexpr int combiner_subarray = 12;
inline constexpr int combiner_darray = 13;
inline constexpr int combiner_f90_real = 14;
inline constexpr int combiner_f90_complex = 15;
inline constexpr int combiner_f90_integer = 16;
inline constexpr int combiner_resized = 17;
inline constexpr int combiner_hvector_integer = 4;
inline constexpr int combiner_hindexed_integer = 7;
inline constexpr int combiner_struct_integer = 10;
inline constexpr int combiner_value_index = -1;  // not in this family

}  // namespace crosslane::mpi
