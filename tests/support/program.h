// The frame of an MPI-level test program: arguments, seed, the rank's GPU, watchdog, collective verdict.
// Options: --memory host|device|managed|pinned|mixed|random (default random), --seed <n>, --cases <n>, --watchdog <s>, --capturing 1 for a
// thread that captures a graph meanwhile;
// CROSSLANE_TEST_SEED and CROSSLANE_TEST_MEMORY stand in for the first two. It must not know Crosslane.
#pragma once

#include "support/capturing.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/random.h"

#include <mpi.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {

class Program {
 public:
  /// Initializes MPI with at least `thread_level`, or exits with 77 (skipped) where the MPI gives less. Retains the
  /// rank's GPU unless --memory host. Rank 0 prints the seed, on which all ranks agree.
  Program(int argc, char** argv, const std::string& name, int thread_level = MPI_THREAD_SINGLE);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int rank = 0, size = 1;
  std::uint64_t seed = 0;

  /// The same choices on all ranks, as long as all ask for the same.
  [[nodiscard]] Random& shared() { return *shared_; }
  /// Choices of this rank.
  [[nodiscard]] Random& local() { return *local_; }

  /// A kind of memory that --memory allows: mixed is host or device, random any kind that the GPU has.
  [[nodiscard]] MemoryKind kind(Random& random) const;
  [[nodiscard]] MemoryKind kind() { return kind(*local_); }
  /// From now on as if --memory were this; for programs that compare with a run in host memory.
  void set_memory(const std::string& mode);
  [[nodiscard]] const std::string& memory() const { return memory_; }

  /// --<name> <number>, or `otherwise`.
  [[nodiscard]] std::int64_t option(const std::string& name, std::int64_t otherwise) const;
  [[nodiscard]] std::string text_option(const std::string& name, const std::string& otherwise) const;

  /// nullptr with --memory host.
  [[nodiscard]] const Device* device() const { return device_.get(); }

  /// What this program is for cannot be done here, on any rank: finish() says why and returns 77, unless a check fails.
  void skip(std::string reason) { skipped_ = std::move(reason); }

  /// Collective over all ranks: ends MPI, and returns the exit status (1 if a check failed on any rank). `last` is done
  /// after the verdict, just before MPI_Finalize.
  [[nodiscard]] int finish(const std::function<void()>& last = {});

 private:
  std::map<std::string, std::string> options_;
  std::string name_, memory_, skipped_;
  std::unique_ptr<Random> shared_, local_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Capturing> capturing_;
  std::unique_ptr<Watchdog> watchdog_;
};

// Waiting that lets other ranks of an oversubscribed machine run (MPICH's blocking calls spin): test, yield.
void polite_wait(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE);
void polite_waitall(std::vector<MPI_Request>& requests);
void polite_barrier(MPI_Comm communicator = MPI_COMM_WORLD);

}  // namespace crosslane::tests
