// The binary interface of MPICH and its kin (Intel MPI, MVAPICH, Cray: the "MPICH ABI") as C++ declarations.
// Checked by tests/mpi against the real header; the values are the same in 4.0 to 5.0, only MPI_INTEGER16 and the sized
// logical types came later (handles.h). It must not know <mpi.h>.
#pragma once

#include <cstddef>
#include <cstdint>

// MPI_Aint, MPI_Count and MPI_Offset are 64-bit integers; which of long and long long differs between builds of MPICH
// and does not matter to a caller.
using MPI_Aint = std::ptrdiff_t;
using MPI_Offset = long long;
using MPI_Count = long long;
using MPI_Fint = int;

// All handles but MPI_File are int in this family, and so are one type to C++: never overload on them.
using MPI_Comm = int;
using MPI_Datatype = int;
using MPI_Errhandler = int;
using MPI_File = struct ADIOI_FileD*;
using MPI_Group = int;
using MPI_Info = int;
using MPI_Op = int;
using MPI_Request = int;
using MPI_Message = int;
using MPI_Win = int;
using MPI_Session = int;

struct MPI_Status {
  int internal_count_low;                 // the MPI's own
  int internal_count_high_and_cancelled;  // the MPI's own
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
};

struct MPI_F08_status {
  MPI_Fint internal_count_low;
  MPI_Fint internal_count_high_and_cancelled;
  MPI_Fint MPI_SOURCE;
  MPI_Fint MPI_TAG;
  MPI_Fint MPI_ERROR;
};

#include "mpi/abi_callbacks.h"

namespace crosslane::mpi {

inline constexpr const char* family = "mpich";

// MPICH 4.0 completes the request of MPI_Rget while data is still to come, where the target's datatype has gaps; not so a flush of the window.
inline constexpr bool gets_complete_early = true;
// Nor does MPICH 4.0's MPI_Win_flush_local complete an MPI_Get that an MPI_Put came after; MPI_Win_flush does.
inline constexpr bool local_flushes_leave_gets = true;

// Addresses with a meaning of their own.
inline void* in_place() noexcept { return reinterpret_cast<void*>(std::intptr_t{-1}); }
inline void* bottom() noexcept { return nullptr; }
inline MPI_Status* status_ignore() noexcept { return reinterpret_cast<MPI_Status*>(1); }
inline MPI_Status* statuses_ignore() noexcept { return reinterpret_cast<MPI_Status*>(1); }
inline int* errcodes_ignore() noexcept { return nullptr; }

// Ranks and tags.
inline constexpr int any_source = -2;
inline constexpr int any_tag = -1;
inline constexpr int proc_null = -1;
inline constexpr int root = -3;
inline constexpr int undefined = -32766;

// Key values of predefined attributes.
inline constexpr int keyval_invalid = 0x24000000;
inline constexpr int tag_ub = 0x64400001;
inline constexpr int wtime_is_global = 0x64400007;
inline constexpr int universe_size = 0x64400009;
inline constexpr int appnum = 0x6440000d;
inline constexpr int lastusedcode = 0x6440000b;
inline constexpr int win_base = 0x66000001;
inline constexpr int win_size = 0x66000003;
inline constexpr int win_disp_unit = 0x66000005;
inline constexpr int win_create_flavor = 0x66000007;
inline constexpr int win_model = 0x66000009;

// Lengths of strings, with their final zero.
inline constexpr int max_error_string = 512;
inline constexpr int max_object_name = 128;
inline constexpr int max_processor_name = 128;
inline constexpr int max_library_version_string = 8192;
inline constexpr int max_info_key = 255;
inline constexpr int max_info_val = 1024;
inline constexpr int max_port_name = 256;
inline constexpr int max_datarep_string = 128;

// Bytes that MPI_Bsend needs beyond the message.
inline constexpr int bsend_overhead = 96;

// Results of comparisons; topologies.
inline constexpr int ident = 0;
inline constexpr int congruent = 1;
inline constexpr int similar = 2;
inline constexpr int unequal = 3;
inline constexpr int graph = 1;
inline constexpr int cart = 2;
inline constexpr int dist_graph = 3;

// MPI_Comm_split_type.
inline constexpr int comm_type_shared = 1;

// Thread levels.
inline constexpr int thread_single = 0;
inline constexpr int thread_funneled = 1;
inline constexpr int thread_serialized = 2;
inline constexpr int thread_multiple = 3;

// Subarrays and distributed arrays.
inline constexpr int order_c = 56;
inline constexpr int order_fortran = 57;
inline constexpr int distribute_block = 121;
inline constexpr int distribute_cyclic = 122;
inline constexpr int distribute_none = 123;
inline constexpr int distribute_dflt_darg = -49767;

// Type classes of MPI_Type_match_size.
inline constexpr int typeclass_real = 1;
inline constexpr int typeclass_integer = 2;
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
inline constexpr int mode_nocheck = 1024;
inline constexpr int mode_noprecede = 8192;
inline constexpr int mode_noput = 4096;
inline constexpr int mode_nostore = 2048;
inline constexpr int mode_nosucceed = 16384;
inline constexpr int lock_exclusive = 234;
inline constexpr int lock_shared = 235;
inline constexpr int win_flavor_create = 1;
inline constexpr int win_flavor_allocate = 2;
inline constexpr int win_flavor_dynamic = 3;
inline constexpr int win_flavor_shared = 4;
inline constexpr int win_unified = 2;
inline constexpr int win_separate = 1;

// Error classes.
inline constexpr int success = 0;
inline constexpr int err_buffer = 1;
inline constexpr int err_count = 2;
inline constexpr int err_type = 3;
inline constexpr int err_tag = 4;
inline constexpr int err_comm = 5;
inline constexpr int err_rank = 6;
inline constexpr int err_request = 19;
inline constexpr int err_root = 7;
inline constexpr int err_group = 8;
inline constexpr int err_op = 9;
inline constexpr int err_topology = 10;
inline constexpr int err_dims = 11;
inline constexpr int err_arg = 12;
inline constexpr int err_unknown = 13;
inline constexpr int err_truncate = 14;
inline constexpr int err_other = 15;
inline constexpr int err_intern = 16;
inline constexpr int err_in_status = 17;
inline constexpr int err_pending = 18;
inline constexpr int err_file = 27;
inline constexpr int err_io = 32;
inline constexpr int err_info = 28;
inline constexpr int err_keyval = 48;
inline constexpr int err_name = 33;
inline constexpr int err_no_mem = 34;
inline constexpr int err_no_space = 36;
inline constexpr int err_not_same = 35;
inline constexpr int err_spawn = 42;
inline constexpr int err_unsupported_operation = 44;
inline constexpr int err_win = 45;
inline constexpr int err_base = 46;
inline constexpr int err_size = 51;
inline constexpr int err_disp = 52;
inline constexpr int err_assert = 53;
inline constexpr int err_locktype = 47;
inline constexpr int err_rma_conflict = 49;
inline constexpr int err_rma_sync = 50;
inline constexpr int err_rma_range = 55;
inline constexpr int err_rma_attach = 56;
inline constexpr int err_rma_shared = 57;
inline constexpr int err_rma_flavor = 58;
inline constexpr int err_lastcode = 0x3fffffff;

// Combiners: MPI_Type_get_envelope's answer, see combiner().
inline constexpr int combiner_named = 1;
inline constexpr int combiner_dup = 2;
inline constexpr int combiner_contiguous = 3;
inline constexpr int combiner_vector = 4;
inline constexpr int combiner_hvector = 6;
inline constexpr int combiner_indexed = 7;
inline constexpr int combiner_hindexed = 9;
inline constexpr int combiner_indexed_block = 10;
inline constexpr int combiner_hindexed_block = 19;
inline constexpr int combiner_struct = 12;
inline constexpr int combiner_subarray = 13;
inline constexpr int combiner_darray = 14;
inline constexpr int combiner_f90_real = 15;
inline constexpr int combiner_f90_complex = 16;
inline constexpr int combiner_f90_integer = 17;
inline constexpr int combiner_resized = 18;
inline constexpr int combiner_hvector_integer = 5;
inline constexpr int combiner_hindexed_integer = 8;
inline constexpr int combiner_struct_integer = 11;
inline constexpr int combiner_value_index = 20;

}  // namespace crosslane::mpi
