// What a receive tells: the fields of MPI_Status, which are public in every family, and its count through MPI itself.
// It must not touch a status's private members.
#pragma once

#include "mpi/functions.h"

namespace crosslane::mpi {

[[nodiscard]] inline int source(const MPI_Status& status) noexcept { return status.MPI_SOURCE; }
[[nodiscard]] inline int tag(const MPI_Status& status) noexcept { return status.MPI_TAG; }
[[nodiscard]] inline int error(const MPI_Status& status) noexcept { return status.MPI_ERROR; }
inline void set_source(MPI_Status& status, int value) noexcept { status.MPI_SOURCE = value; }
inline void set_tag(MPI_Status& status, int value) noexcept { status.MPI_TAG = value; }
inline void set_error(MPI_Status& status, int value) noexcept { status.MPI_ERROR = value; }

/// True if a status was asked for, that is, `status` is neither MPI_STATUS_IGNORE nor MPI_STATUSES_IGNORE.
[[nodiscard]] inline bool wanted(const MPI_Status* status) noexcept {
  return status != status_ignore() && status != statuses_ignore();
}

/// The bytes that arrived. Error (intern) if MPI cannot tell.
[[nodiscard]] MPI_Count received_bytes(const Functions& mpi, const MPI_Status& status);

/// Sets the bytes that MPI_Get_count and MPI_Get_elements will compute from.
void set_received_bytes(const Functions& mpi, MPI_Status& status, MPI_Count bytes);

/// True if an MPI call returned a code of the class MPI_ERR_TRUNCATE: the receive is complete, cut to its buffer.
[[nodiscard]] bool is_truncation(const Functions& mpi, int code) noexcept;

[[nodiscard]] bool cancelled(const Functions& mpi, const MPI_Status& status);
void set_cancelled(const Functions& mpi, MPI_Status& status, bool value);

/// The "empty status" of an inactive or null request (MPI 5.0, section 3.7.3): MPI_ANY_SOURCE, MPI_ANY_TAG, no bytes.
[[nodiscard]] MPI_Status empty_status(const Functions& mpi);

/// The status of a receive from MPI_PROC_NULL (section 3.10).
[[nodiscard]] MPI_Status proc_null_status(const Functions& mpi);

/// Copies all but MPI_ERROR, which calls with a single status must leave alone; no effect if `to` is an ignore value.
void copy_but_error(const MPI_Status& from, MPI_Status* to) noexcept;

}  // namespace crosslane::mpi
