// The MPI library under this process: its functions and predefined handles, found at run time and never linked.
// `next` is what stands behind our exported MPI_X (a PMPI tool loaded after us sees those calls); `below` is the MPI
// library's own PMPI_X. It must not know who calls, nor call anything before someone asks.
#pragma once

#include "mpi/functions.h"
#include "mpi/handles.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace crosslane::mpi {

/// True between MPI_Init and MPI_Finalize: MPI_COMM_WORLD and MPI_COMM_SELF exist. A program that knows sessions alone (MPI 5.0,
/// section 11.3) never has them, though it communicates.
[[nodiscard]] bool world_exists(const Functions& below) noexcept;

class Library {
 public:
  Library();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The tables, found on the first call of any of these; then one acquire load. Safe from any thread.
  /// Error (other) if no MPI library of this ABI family is loaded (yet): a later call tries again.
  [[nodiscard]] const Functions& next() const { return tables().next; }
  [[nodiscard]] const Functions& below() const { return tables().below; }
  [[nodiscard]] const Handles& handles() const { return tables().handles; }

  /// The file that MPI's functions come from.
  [[nodiscard]] const std::string& path() const { return tables().path; }

  /// True if an MPI library of this family is loaded.
  [[nodiscard]] bool loaded() const noexcept;

  /// MPI_Get_library_version, which may be called before MPI_Init.
  [[nodiscard]] std::string version() const;

  /// True if the MPI below says that it takes CUDA device pointers (its own MPIX_Query_cuda_support or
  /// MPIX_GPU_query_support). It says so for point-to-point; collectives may still need the host. False outside of
  /// MPI_Init and MPI_Finalize, where MPICH must not be asked.
  [[nodiscard]] bool cuda_capable() const;

  struct Tables {
    Functions next;
    Functions below;
    Handles handles;
    std::string path;
    int (*query_cuda)(void) = nullptr;      // MPIX_Query_cuda_support
    int (*query_gpu)(int, int*) = nullptr;  // MPIX_GPU_query_support
  };

  /// The tables if they were found before; null otherwise.
  [[nodiscard]] const Tables* found() const noexcept { return found_.load(std::memory_order_acquire); }

 private:
  [[nodiscard]] const Tables& tables() const {
    const Tables* const ready = found();
    if (ready != nullptr) [[likely]]
      return *ready;
    return resolve();
  }
  const Tables& resolve() const;

  mutable std::atomic<const Tables*> found_ = nullptr;  // released after *tables_ is complete; never changes after
  mutable std::mutex mutex_;                            // protects tables_
  mutable std::unique_ptr<const Tables> tables_;
};

}  // namespace crosslane::mpi
