// The translations between our enumerations and the family's integers.
#include "mpi/abi.h"

namespace crosslane::mpi {

Combiner combiner(int value) {
  switch (value) {
    case combiner_named:
      return Combiner::named;
    case combiner_dup:
      return Combiner::dup;
    case combiner_contiguous:
      return Combiner::contiguous;
    case combiner_vector:
      return Combiner::vector;
    // The _integer combiners are those of MPI-1's constructors called from Fortran; their contents read the same.
    case combiner_hvector_integer:
    case combiner_hvector:
      return Combiner::hvector;
    case combiner_indexed:
      return Combiner::indexed;
    case combiner_hindexed_integer:
    case combiner_hindexed:
      return Combiner::hindexed;
    case combiner_indexed_block:
      return Combiner::indexed_block;
    case combiner_hindexed_block:
      return Combiner::hindexed_block;
    case combiner_struct_integer:
    case combiner_struct:
      return Combiner::structure;
    case combiner_subarray:
      return Combiner::subarray;
    case combiner_darray:
      return Combiner::darray;
    case combiner_f90_real:
      return Combiner::f90_real;
    case combiner_f90_complex:
      return Combiner::f90_complex;
    case combiner_f90_integer:
      return Combiner::f90_integer;
    case combiner_resized:
      return Combiner::resized;
    case combiner_value_index:
      return Combiner::value_index;
    default:
      throw base::Error(base::ErrorClass::intern, "MPI_Type_get_envelope gave combiner {}, which {} does not define",
                        value, family);
  }
}

int error_class(base::ErrorClass error_class) noexcept {
  using base::ErrorClass;
  switch (error_class) {
    case ErrorClass::buffer:
      return err_buffer;
    case ErrorClass::count:
      return err_count;
    case ErrorClass::type:
      return err_type;
    case ErrorClass::tag:
      return err_tag;
    case ErrorClass::comm:
      return err_comm;
    case ErrorClass::rank:
      return err_rank;
    case ErrorClass::root:
      return err_root;
    case ErrorClass::op:
      return err_op;
    case ErrorClass::topology:
      return err_topology;
    case ErrorClass::argument:
      return err_arg;
    case ErrorClass::truncate:
      return err_truncate;
    case ErrorClass::request:
      return err_request;
    case ErrorClass::group:
      return err_group;
    case ErrorClass::displacement:
      return err_disp;
    case ErrorClass::size:
      return err_size;
    case ErrorClass::lock_type:
      return err_locktype;
    case ErrorClass::assertion:
      return err_assert;
    case ErrorClass::rma_sync:
      return err_rma_sync;
    case ErrorClass::rma_range:
      return err_rma_range;
    case ErrorClass::rma_attach:
      return err_rma_attach;
    case ErrorClass::rma_flavor:
      return err_rma_flavor;
    case ErrorClass::no_memory:
      return err_no_mem;
    case ErrorClass::unsupported:
      return err_unsupported_operation;
    case ErrorClass::other:
      return err_other;
    case ErrorClass::intern:
      return err_intern;
  }
  return err_intern;
}

}  // namespace crosslane::mpi
