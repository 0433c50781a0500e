// What makes communicators, and ends them: which of them come from sessions, and by what names the teams know the others. It must not know what
// either means for a message or a collective.
#pragma once

#include "base/function_ref.h"
#include "interpose/process.h"
#include "mpi/abi.h"

namespace crosslane::interpose {

/// How the teams come to know a communicator's name: all ranks of its parent count, or its first member tells the others, or not at all.
enum class Naming { counted, told, none };

/// Runs `make`, which makes a communicator from `parent`, fills in the place that it is given, and returns MPI's code.
int make_communicator(const Site& site, const char* call, Naming naming, MPI_Comm parent, MPI_Comm* child,
                      base::FunctionRef<int(MPI_Comm*)> make);

/// The same of a call that only starts making it, in its own place: it has its name once `request` is complete.
int start_communicator(const Site& site, const char* call, MPI_Comm parent, MPI_Comm* child, MPI_Request* request,
                       base::FunctionRef<int()> make);

/// The same of a call that makes a session's, without a parent.
int make_communicator_of_session(const Site& site, const char* call, MPI_Comm* child,
                                 base::FunctionRef<int(MPI_Comm*)> make);

}  // namespace crosslane::interpose
