// Undertaking: what an operation does without MPI, and the request that stands for it: one that MPI never completes by itself.
// It must not know which call it is, nor which call completes it.
#pragma once

#include "interpose/process.h"
#include "mpi/abi.h"
#include "mpi/functions.h"

#include <memory>
#include <string>

namespace crosslane::interpose {

class Undertaking {
 public:
  Undertaking() = default;
  Undertaking(const Undertaking&) = delete;
  Undertaking& operator=(const Undertaking&) = delete;
  virtual ~Undertaking() = default;

  /// Sees whether it is over, or how to go on. The engine has its turns besides.
  virtual void look() {}
  /// Nothing is under way any more, well or not.
  [[nodiscard]] virtual bool over() const noexcept = 0;
  /// Once it is over: results are where the application wants them. What went wrong is left to rethrow().
  virtual void deliver() = 0;
  virtual void rethrow() const = 0;
  /// MPI_Cancel: may end it without an effect, or do nothing.
  virtual void cancel() {}
  /// Once it is over: what its completion tells.
  [[nodiscard]] virtual MPI_Status status() const = 0;
  /// What it waits for, for the watchdog.
  [[nodiscard]] virtual std::string details() const = 0;
};

/// What decides at each start of a persistent operation whether MPI carries it out.
class Starter {
 public:
  Starter() = default;
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;
  virtual ~Starter() = default;
  /// `undertaking`: what is under way now instead; null where MPI is to be asked. Returns MPI's code, of an error that it has raised; throws
  /// Error.
  virtual int start(const Site& site, std::unique_ptr<Undertaking>& undertaking) = 0;
  /// Others wait for this start, whatever has become of its memory.
  [[nodiscard]] virtual bool is_awaited() const noexcept { return false; }
};

/// A request of MPI's that is complete. Returns MPI's code.
int lend_complete_request(Process& process, MPI_Request* request);

/// A request that MPI never completes by itself, and that is no other's. Returns MPI's code.
int lend_idle_request(Process& process, MPI_Request* request);
/// Gives it back, and makes it null: kept for the next one, since MPICH 4.0 hangs in persistent collectives whose requests lie where
/// persistent receives were freed.
void take_back_idle_request(Process& process, MPI_Request* request);

/// Completes an operation whose undertaking is over: the request is inactive, or freed if it is not persistent. The status may be
/// ignored. Throws what went wrong.
void finish_undertaking(Process& process, Operation& operation, MPI_Request* request, MPI_Status* status);

}  // namespace crosslane::interpose
