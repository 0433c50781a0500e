// All that Crosslane keeps for one process, behind the one pointer that the exported wrappers share. Made at the first
// wrapped call and never destroyed: wrappers may run in destructors of other libraries.
#pragma once

#include "base/settings.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/host_memory.h"
#include "interpose/requests.h"
#include "lane/copier.h"
#include "layout/cache.h"
#include "mpi/abi.h"
#include "mpi/library.h"

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace crosslane::interpose {

/// Whether an exported symbol is the MPI_ or the PMPI_ one; each calls the next of its own name, so that tools which use
/// the profiling interface before or after us see what they would see without us.
enum class Level { mpi, pmpi };

class Process {
 public:
  /// The process's object; made on first use.
  static Process& get() noexcept;

  /// True if GPU memory may be among a call's arguments: at most a few nanoseconds while no driver library is loaded.
  [[nodiscard]] bool watching() noexcept { return active_ && gpu_->present(); }
  [[nodiscard]] bool active() const noexcept { return active_; }

  /// The functions that wrapped calls go on to; all null, and said so, where no MPI of this family is loaded.
  [[nodiscard]] const mpi::Functions& next(Level level) noexcept;
  [[nodiscard]] mpi::Library& library() noexcept { return library_; }
  [[nodiscard]] const base::Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] gpu::Gpu& gpu() noexcept { return *gpu_; }
  [[nodiscard]] gpu::HostMemory& host_memory() noexcept { return host_memory_; }
  [[nodiscard]] Requests& requests() noexcept { return requests_; }
  [[nodiscard]] engine::Engine& engine();
  [[nodiscard]] lane::Copier& copier();
  [[nodiscard]] layout::Cache& layouts();

  /// After the MPI is initialised: reports bad settings and forms the world. Returns an MPI error code.
  int initialized() noexcept;
  /// Before the MPI is finalised: completes what is left and gives GPU memory and handles back.
  void finalizing() noexcept;

  /// Says once a route which way its calls go (CROSSLANE_LOG=route).
  void log_route(const char* call, const char* route);

  /// The message of the last error that Crosslane raised with this code, once: a later error of the MPI may have the same.
  [[nodiscard]] std::string take_error_message(int code);
  void remember_error(int code, const std::string& message);

 private:
  Process();
  void make_services();

  base::Settings settings_;
  std::string settings_error_;
  bool active_ = false;
  bool initialized_ = false;
  mpi::Library library_;
  const mpi::Functions absent_{};
  std::unique_ptr<gpu::Gpu> gpu_;
  gpu::HostMemory host_memory_;
  Requests requests_;
  std::once_flag services_once_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<lane::Copier> copier_;
  std::unique_ptr<layout::Cache> layouts_;

  std::mutex mutex_;
  std::set<std::string> logged_routes_;
  int error_code_ = 0;
  std::string error_message_;
};

namespace detail {
// Initial-exec: the library is loaded at program start, and a call of __tls_get_addr would cost more than the rest.
extern constinit thread_local int nesting __attribute__((tls_model("initial-exec")));
}  // namespace detail

/// While one lives, wrapped calls of this thread go straight on: they come from the MPI below or from our own calls.
class Nested {
 public:
  Nested() noexcept { ++detail::nesting; }
  ~Nested() { --detail::nesting; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

/// Where a wrapped call arrived.
class Site {
 public:
  explicit Site(Level level) noexcept : process_(Process::get()), level_(level) {}

  [[nodiscard]] Process& process() const noexcept { return process_; }
  [[nodiscard]] const mpi::Functions& next() const noexcept { return process_.next(level_); }
  /// True if the call may have to be looked at: not inside one of our own, and a driver is loaded.
  [[nodiscard]] bool watching() const noexcept { return detail::nesting == 0 && process_.watching(); }
  /// True if this pointer needs a route: GPU memory, or memory that neither CPU nor GPU can reach.
  [[nodiscard]] bool on_gpu(const void* pointer) const noexcept;
  /// The same where a null pointer may be MPI_BOTTOM.
  [[nodiscard]] bool on_gpu(const void* pointer, bool anything) const noexcept {
    return pointer == nullptr ? anything : on_gpu(pointer);
  }

 private:
  Process& process_;
  Level level_;
};

}  // namespace crosslane::interpose
