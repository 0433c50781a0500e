// Threads of a rank, each of which meets the same thread of the other ranks. It must not know what they do there.
#pragma once

#include "support/program.h"

#include <cstdint>
#include <thread>
#include <vector>

namespace crosslane::tests {

/// For so many threads: make(thread, communicator), in the calling thread, gives a pointer to a worker with a duplicate of MPI_COMM_WORLD of
/// its own. Then each worker's run(cases) is called in its thread, with the rank's GPU current. Workers end in the calling thread, when all
/// of all ranks are done, and before their communicators do.
template <class Make>
void run_on_threads(const Program& program, std::int64_t threads, std::int64_t cases, const Make& make) {
  std::vector<MPI_Comm> communicators(static_cast<std::size_t>(threads), MPI_COMM_NULL);
  std::vector<decltype(make(0, MPI_COMM_NULL))> workers;
  for (auto& each : communicators) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &each));
    workers.push_back(make(static_cast<int>(workers.size()), each));
  }
  std::vector<std::thread> running;
  for (const auto& worker : workers) {
    running.emplace_back([&program, &worker, cases, thread = running.size()] {
      if (program.device() != nullptr) program.device()->make_current();
      worker->run(cases);
      CROSSLANE_STEP("thread {} is done", thread);
    });
  }
  for (auto& thread : running) thread.join();
  polite_barrier();
  workers.clear();
  for (auto& each : communicators) CROSSLANE_MPI(MPI_Comm_free(&each));
}

}  // namespace crosslane::tests
