// One-sided accesses to windows whose ranks have each other's memory mapped (MPI 5.0, section 12.3): what the generated wrappers ask first. Nothing where
// the window is another one, or MPI has its own words for the arguments: then MPI is called. It must not know how bytes get there.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"

#include <optional>

namespace crosslane::interpose::mapped {

// `call` is the procedure's name; those with a request return one that is complete, and so is the access.
std::optional<int> put(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request = nullptr);
std::optional<int> get(const Site& site, const char* call, void* origin_addr, MPI_Count origin_count,
                       MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                       MPI_Datatype target_datatype, MPI_Win win, MPI_Request* request = nullptr);
std::optional<int> accumulate(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                              MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                              MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                              MPI_Request* request = nullptr);
std::optional<int> get_accumulate(const Site& site, const char* call, const void* origin_addr, MPI_Count origin_count,
                                  MPI_Datatype origin_datatype, void* result_addr, MPI_Count result_count,
                                  MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
                                  MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                                  MPI_Request* request = nullptr);
std::optional<int> fetch_and_op(const Site& site, const char* call, const void* origin_addr, void* result_addr,
                                MPI_Datatype datatype, int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win);
std::optional<int> compare_and_swap(const Site& site, const char* call, const void* origin_addr,
                                    const void* compare_addr, void* result_addr, MPI_Datatype datatype, int target_rank,
                                    MPI_Aint target_disp, MPI_Win win);

}  // namespace crosslane::interpose::mapped
