// MPI_THREAD_MULTIPLE: several threads a rank, each with a window of its own in which it meets the same thread of the other ranks.
// It must not know Crosslane.
#include "support/threads.h"
#include "one_sided/parts.h"
#include "support/plain_mpi.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace crosslane::tests {
namespace {

class Worker {
 public:
  /// Collective over `communicator`. Every rank has a slot in every window.
  Worker(const Program& program, int thread, MPI_Comm communicator)
      : program_(program),
        thread_(thread),
        communicator_(communicator),
        local_(mix(program.seed, program.rank, thread)),
        memory_(program.kind(local_), static_cast<std::size_t>(program.size) * slot) {
    memory_.write(std::vector<std::byte>(memory_.size()));
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), static_cast<MPI_Aint>(memory_.size()), 1, MPI_INFO_NULL, communicator,
                                 &window_));
  }

  ~Worker() { CROSSLANE_MPI(MPI_Win_free(&window_)); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void run(std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      const auto shift =
          static_cast<int>(mix(program_.seed, thread_, round) % static_cast<std::uint64_t>(program_.size));
      const int to = (program_.rank + shift) % program_.size,
                from = (program_.rank + program_.size - shift) % program_.size;
      const std::size_t bytes = 1 + mix(program_.seed, thread_, round, 2) % slot;
      CROSSLANE_STEP("thread {}, round {}: {} bytes to rank {}", thread_, round, bytes, to);
      exchange(to, bytes, mix(program_.seed, thread_, round, program_.rank));
      polite_barrier(communicator_);
      CROSSLANE_STEP("thread {}, round {}: from rank {}", thread_, round, from);
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, program_.rank, 0, window_));
      CROSSLANE_CHECK(memory_.read(static_cast<std::size_t>(from) * slot, bytes) ==
                          pattern(mix(program_.seed, thread_, round, from), bytes),
                      "thread {}, round {}: {} bytes from rank {} in {} memory", thread_, round, bytes, from,
                      name(memory_.kind()));
      CROSSLANE_MPI(MPI_Win_unlock(program_.rank, window_));
      polite_barrier(communicator_);
    }
  }

 private:
  static constexpr std::size_t slot = 30000;

  void exchange(int to, std::size_t bytes, std::uint64_t seed) {
    Memory out(program_.kind(local_), bytes), in(program_.kind(local_), bytes);
    out.write(pattern(seed, bytes));
    const int count = static_cast<int>(bytes);
    const auto place = static_cast<MPI_Aint>(program_.rank) * static_cast<MPI_Aint>(slot);
    CROSSLANE_MPI(MPI_Win_lock(local_.chance(50) ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, to, 0, window_));
    CROSSLANE_MPI(MPI_Put(out.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, window_));
    CROSSLANE_MPI(MPI_Win_flush(to, window_));
    CROSSLANE_MPI(MPI_Get(in.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, window_));
    CROSSLANE_MPI(MPI_Win_flush(to, window_));
    CROSSLANE_CHECK(in.read() == out.read(), "{} bytes through rank {}", bytes, to);
    CROSSLANE_MPI(MPI_Win_unlock(to, window_));
  }

  const Program& program_;
  int thread_;
  MPI_Comm communicator_;
  Random local_;
  Memory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

void one_sided_threads(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  const auto threads = program.option("threads", 3), rounds = program.option("cases", 20);
  run_on_threads(program, threads, rounds, [&](int thread, MPI_Comm communicator) {
    return std::make_unique<Worker>(program, thread, communicator);
  });
}

}  // namespace crosslane::tests
