// The parts of a status that only MPI can read and write.
#include "mpi/status.h"

#include "mpi/calls.h"

namespace crosslane::mpi {
namespace {

void check(int result, const char* procedure) {
  if (result != success)
    throw base::Error(base::ErrorClass::intern, "{} on a status failed with {}", procedure, result);
}

}  // namespace

MPI_Count received_bytes(const Functions& mpi, const MPI_Status& status) {
  MPI_Count bytes = 0;
  check(calls::Get_elements(mpi, &status, mpi.handles->byte, &bytes), "MPI_Get_elements");
  if (bytes < 0) throw base::Error(base::ErrorClass::intern, "MPI_Get_elements cannot tell the bytes of a status");
  return bytes;
}

void set_received_bytes(const Functions& mpi, MPI_Status& status, MPI_Count bytes) {
  check(calls::Status_set_elements(mpi, &status, mpi.handles->byte, bytes), "MPI_Status_set_elements");
}

bool cancelled(const Functions& mpi, const MPI_Status& status) {
  int flag = 0;
  check(mpi.Test_cancelled(&status, &flag), "MPI_Test_cancelled");
  return flag != 0;
}

void set_cancelled(const Functions& mpi, MPI_Status& status, bool value) {
  check(mpi.Status_set_cancelled(&status, value ? 1 : 0), "MPI_Status_set_cancelled");
}

MPI_Status empty_status(const Functions& mpi) {
  MPI_Status status{};
  status.MPI_SOURCE = any_source;
  status.MPI_TAG = any_tag;
  status.MPI_ERROR = success;
  set_cancelled(mpi, status, false);
  set_received_bytes(mpi, status, 0);
  return status;
}

MPI_Status proc_null_status(const Functions& mpi) {
  MPI_Status status = empty_status(mpi);
  status.MPI_SOURCE = proc_null;
  return status;
}

void copy_but_error(const MPI_Status& from, MPI_Status* to) noexcept {
  if (!wanted(to)) return;
  const int kept = to->MPI_ERROR;
  *to = from;
  to->MPI_ERROR = kept;
}

bool is_truncation(const Functions& mpi, int code) noexcept {
  int error_class = success;
  return code != success && mpi.Error_class(code, &error_class) == success && error_class == err_truncate;
}

}  // namespace crosslane::mpi
