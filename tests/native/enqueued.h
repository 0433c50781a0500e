// Streams, graphs, and the calls of crosslane.h as the tests make them. It must not know what comes out.
#pragma once

#include "direct/job.h"

#include <cuda.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::tests {

/// A stream of this rank's GPU. Copies of Memory do not wait for it.
class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;

  [[nodiscard]] CUstream handle() const { return stream_; }
  /// Returns when all is done that was enqueued; meanwhile other ranks of the machine may run.
  void finish() const;
  /// What follows on this stream waits for what is on the other now.
  void follow(const Stream& other) const;

 private:
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
};

/// What is enqueued on a stream while it lives, as a graph.
class Graph {
 public:
  explicit Graph(const Stream& stream);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void end();
  void launch() const;

 private:
  const Stream& stream_;
  CUgraphExec exec_ = nullptr;
};

/// While one lives, an emulated GPU's driver ends the process on a call of this thread that allocates or maps memory, as a call that
/// is enqueued must not. On real GPUs it does nothing.
class NothingAllocated {
 public:
  NothingAllocated() { forbid(1); }
  ~NothingAllocated() { forbid(0); }
  NothingAllocated(const NothingAllocated&) = delete;
  NothingAllocated& operator=(const NothingAllocated&) = delete;

 private:
  static void forbid(int on);
};

/// Enqueues the case, with nothing allocated; returns what the call does.
int enqueue(const Job& job, const Job::Run& run, const Stream& stream);

/// What a rank passes: by the seed and the rank alone, so that every rank knows it.
[[nodiscard]] std::vector<std::uint32_t> words_of(std::uint64_t seed, int rank, std::size_t count);

/// Must succeed; `buffers` as crosslane_prepare takes them.
void prepare(MPI_Comm communicator, std::size_t bytes, const std::vector<void*>& buffers = {});

/// Whether enqueued calls can be prepared on the world. Where kernels of its ranks take turns on a GPU that they share they cannot:
/// then checks that crosslane_prepare says so on every rank, and still prepares what one rank has alone, and marks the program as
/// skipped. Collective.
[[nodiscard]] bool can_prepare(Program& program);

/// -1 while nobody was waited for in vain.
[[nodiscard]] int missing(MPI_Comm communicator);

}  // namespace crosslane::tests
