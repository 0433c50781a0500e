// Whom an MPI error is raised on: the handle whose error handler the standard names for the call (MPI 5.0, section 9.3).
// It must not know how errors are raised (route.cpp).
#pragma once

#include "mpi/abi.h"

namespace crosslane::interpose {

struct Target {
  enum class Kind { comm, file, win, session, self } kind = Kind::self;
  MPI_Comm comm{};
  MPI_File file{};
  MPI_Win win{};
  MPI_Session session{};

  static Target of_comm(MPI_Comm handle) { return {.kind = Kind::comm, .comm = handle}; }
  static Target of_file(MPI_File handle) { return {.kind = Kind::file, .file = handle}; }
  static Target of_win(MPI_Win handle) { return {.kind = Kind::win, .win = handle}; }
  static Target of_session(MPI_Session handle) { return {.kind = Kind::session, .session = handle}; }
  static Target self() { return {}; }
};

}  // namespace crosslane::interpose
