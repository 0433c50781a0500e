// How the ranks of a communicator come to have a mapped window: they tell each other what each has, map that, and agree on it. It must not know accesses.
#pragma once

#include "interpose/mapped_window.h"
#include "interpose/process.h"
#include "mpi/abi.h"

#include <exception>
#include <memory>

namespace crosslane::interpose {

/// Whether the ranks of a communicator tell each other how they fare before they make a window: they all load Crosslane and belong to one
/// MPI_COMM_WORLD, and GPU memory may appear in some. The same on all.
[[nodiscard]] bool tell_each_other(Process& process, MPI_Comm comm);

/// In a call that makes a window, collective over `comm`: rethrows `failure`, what has kept this rank from it, if anything; throws Error (buffer),
/// naming `call`, where another rank has one. Nobody waits in MPI's own call then for who does not come; unless the ranks do not tell each
/// other.
void agree(Process& process, const char* call, MPI_Comm comm, const std::exception_ptr& failure);

/// In MPI_Win_create, collective over `comm`: of `size` bytes at `base`, if `on_gpu`; MPI's window is made, too: epochs().window(). Null, on all ranks,
/// where some are on another node or have their part in other memory, where one cannot map another's, or CROSSLANE_MAPPED_WINDOWS=0. Throws Error, on all
/// ranks, naming `call`, where one has passed memory that is not all there, or a wrong size or displacement unit.
std::unique_ptr<MappedWindow> map_window(Process& process, const char* call, void* base, MPI_Aint size, bool on_gpu,
                                         MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm);

}  // namespace crosslane::interpose
