// The calls that open, complete and close epochs of windows whose ranks have each other's memory mapped (MPI 5.0, section 12.5): what one_sided.cpp asks first.
// Nothing where the window is another one. It must not know how ranks wait for each other.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"

#include <optional>

namespace crosslane::interpose::mapped {

std::optional<int> fence(const Site& site, int assertion, MPI_Win win);
std::optional<int> start(const Site& site, MPI_Group group, int assertion, MPI_Win win);
std::optional<int> complete(const Site& site, MPI_Win win);
std::optional<int> post(const Site& site, MPI_Group group, int assertion, MPI_Win win);
std::optional<int> wait(const Site& site, MPI_Win win);
std::optional<int> test(const Site& site, MPI_Win win, int* flag);
std::optional<int> lock(const Site& site, int lock_type, int rank, int assertion, MPI_Win win);
std::optional<int> lock_all(const Site& site, int assertion, MPI_Win win);
std::optional<int> unlock(const Site& site, int rank, MPI_Win win);
std::optional<int> unlock_all(const Site& site, MPI_Win win);
/// Each of the four of that name; of one rank's memory, or of all.
std::optional<int> flush(const Site& site, const char* call, std::optional<int> rank, MPI_Win win);
std::optional<int> sync(const Site& site, MPI_Win win);
/// Of such a window no rank's memory is shared by loads and stores of CPUs: success where that is to be told.
std::optional<int> shared_query(const Site& site, const char* call, int rank, MPI_Win win);

}  // namespace crosslane::interpose::mapped
