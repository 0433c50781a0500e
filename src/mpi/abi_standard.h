// The binary interface that MPI 5.0 standardises (chapter 20; libmpi_abi.so) as C++ declarations. Checked by tests/mpi
// against MPICH's mpi_abi.h. No library of this family is built yet: add "standard" to CROSSLANE_FAMILIES for one.
// It must not know <mpi.h>.
#pragma once

#include <cstddef>
#include <cstdint>

using MPI_Aint = std::intptr_t;
using MPI_Offset = std::int64_t;
using MPI_Count = MPI_Offset;
using MPI_Fint = int;

using MPI_Comm = struct MPI_ABI_Comm*;
using MPI_Datatype = struct MPI_ABI_Datatype*;
using MPI_Errhandler = struct MPI_ABI_Errhandler*;
using MPI_File = struct MPI_ABI_File*;
using MPI_Group = struct MPI_ABI_Group*;
using MPI_Info = struct MPI_ABI_Info*;
using MPI_Op = struct MPI_ABI_Op*;
using MPI_Request = struct MPI_ABI_Request*;
using MPI_Message = struct MPI_ABI_Message*;
using MPI_Win = struct MPI_ABI_Win*;
using MPI_Session = struct MPI_ABI_Session*;

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int internal[5];  // the MPI's own
};

struct MPI_F08_status {
  MPI_Fint MPI_SOURCE;
  MPI_Fint MPI_TAG;
  MPI_Fint MPI_ERROR;
  MPI_Fint internal[5];
};

#include "mpi/abi_callbacks.h"

namespace crosslane::mpi {

inline constexpr const char* family = "standard";
inline constexpr bool gets_complete_early = true;       // in one of the MPIs that it may be
inline constexpr bool local_flushes_leave_gets = true;  // the same

// Addresses with a meaning of their own.
inline void* in_place() noexcept { return reinterpret_cast<void*>(1); }
inline void* bottom() noexcept { return nullptr; }
inline MPI_Status* status_ignore() noexcept { return nullptr; }
inline MPI_Status* statuses_ignore() noexcept { return nullptr; }
inline int* errcodes_ignore() noexcept { return nullptr; }

// Ranks and tags.
inline constexpr int any_source = -1;
inline constexpr int any_tag = -2;
inline constexpr int proc_null = -3;
inline constexpr int root = -4;
inline constexpr int undefined = -32766;

// Key values of predefined attributes.
inline constexpr int keyval_invalid = 0;
inline constexpr int tag_ub = 501;
inline constexpr int wtime_is_global = 504;
inline constexpr int universe_size = 507;
inline constexpr int appnum = 505;
inline constexpr int lastusedcode = 506;
inline constexpr int win_base = 601;
inline constexpr int win_size = 603;
inline constexpr int win_disp_unit = 602;
inline constexpr int win_create_flavor = 604;
inline constexpr int win_model = 605;

// Lengths of strings, with their final zero.
inline constexpr int max_error_string = 512;
inline constexpr int max_object_name = 128;
inline constexpr int max_processor_name = 256;
inline constexpr int max_library_version_string = 8192;
inline constexpr int max_info_key = 256;
inline constexpr int max_info_val = 1024;
inline constexpr int max_port_name = 1024;
inline constexpr int max_datarep_string = 128;

// Bytes that MPI_Bsend needs beyond the message.
inline constexpr int bsend_overhead = 512;

// Results of comparisons; topologies.
inline constexpr int ident = 201;
inline constexpr int congruent = 202;
inline constexpr int similar = 203;
inline constexpr int unequal = 204;
inline constexpr int graph = 212;
inline constexpr int cart = 211;
inline constexpr int dist_graph = 213;

// MPI_Comm_split_type.
inline constexpr int comm_type_shared = 221;

// Thread levels.
inline constexpr int thread_single = 0;
inline constexpr int thread_funneled = 1024;
inline constexpr int thread_serialized = 2048;
inline constexpr int thread_multiple = 4096;

// Subarrays and distributed arrays.
inline constexpr int order_c = 12;
inline constexpr int order_fortran = 15;
inline constexpr int distribute_block = 17;
inline constexpr int distribute_cyclic = 18;
inline constexpr int distribute_none = 16;
inline constexpr int distribute_dflt_darg = 19;

// Type classes of MPI_Type_match_size.
inline constexpr int typeclass_real = 193;
inline constexpr int typeclass_integer = 192;
inline constexpr int typeclass_complex = 194;

// Files.
inline constexpr int mode_create = 2;
inline constexpr int mode_rdonly = 16;
inline constexpr int mode_wronly = 256;
inline constexpr int mode_rdwr = 32;
inline constexpr int mode_delete_on_close = 4;
inline constexpr int mode_unique_open = 128;
inline constexpr int mode_excl = 8;
inline constexpr int mode_append = 1;
inline constexpr int mode_sequential = 64;
inline constexpr int seek_set = 403;
inline constexpr int seek_cur = 401;
inline constexpr int seek_end = 402;
inline constexpr MPI_Offset displacement_current = -1;

// Windows.
inline constexpr int mode_nocheck = 1024;
inline constexpr int mode_noprecede = 2048;
inline constexpr int mode_noput = 4096;
inline constexpr int mode_nostore = 8192;
inline constexpr int mode_nosucceed = 16384;
inline constexpr int lock_exclusive = 301;
inline constexpr int lock_shared = 302;
inline constexpr int win_flavor_create = 311;
inline constexpr int win_flavor_allocate = 312;
inline constexpr int win_flavor_dynamic = 313;
inline constexpr int win_flavor_shared = 314;
inline constexpr int win_unified = 321;
inline constexpr int win_separate = 322;

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
inline constexpr int err_in_status = 19;
inline constexpr int err_pending = 18;
inline constexpr int err_file = 30;
inline constexpr int err_io = 35;
inline constexpr int err_info = 34;
inline constexpr int err_keyval = 36;
inline constexpr int err_name = 38;
inline constexpr int err_no_mem = 39;
inline constexpr int err_no_space = 41;
inline constexpr int err_not_same = 40;
inline constexpr int err_spawn = 53;
inline constexpr int err_unsupported_operation = 55;
inline constexpr int err_win = 56;
inline constexpr int err_base = 24;
inline constexpr int err_size = 52;
inline constexpr int err_disp = 26;
inline constexpr int err_assert = 22;
inline constexpr int err_locktype = 37;
inline constexpr int err_rma_conflict = 47;
inline constexpr int err_rma_sync = 50;
inline constexpr int err_rma_range = 48;
inline constexpr int err_rma_attach = 46;
inline constexpr int err_rma_shared = 49;
inline constexpr int err_rma_flavor = 57;
inline constexpr int err_lastcode = 16383;

// Combiners: MPI_Type_get_envelope's answer, see combiner().
inline constexpr int combiner_named = 101;
inline constexpr int combiner_dup = 102;
inline constexpr int combiner_contiguous = 103;
inline constexpr int combiner_vector = 104;
inline constexpr int combiner_hvector = 105;
inline constexpr int combiner_indexed = 106;
inline constexpr int combiner_hindexed = 107;
inline constexpr int combiner_indexed_block = 108;
inline constexpr int combiner_hindexed_block = 109;
inline constexpr int combiner_struct = 110;
inline constexpr int combiner_subarray = 111;
inline constexpr int combiner_darray = 112;
inline constexpr int combiner_f90_real = 113;
inline constexpr int combiner_f90_complex = 114;
inline constexpr int combiner_f90_integer = 115;
inline constexpr int combiner_resized = 116;
inline constexpr int combiner_hvector_integer = -1;   // not in this family
inline constexpr int combiner_hindexed_integer = -2;  // not in this family
inline constexpr int combiner_struct_integer = -3;    // not in this family
inline constexpr int combiner_value_index = 117;

}  // namespace crosslane::mpi
