// MPI_THREAD_MULTIPLE and one dynamic window: several threads a rank attach memory to it and detach it while others store into theirs. Each meets
// the same thread of the other ranks, and leaves some windows of its own for MPI_Finalize. It must not know Crosslane.
#include "one_sided/parts.h"
#include "one_sided/plain.h"
#include "support/plain_mpi.h"
#include "support/threads.h"

#include <memory>
#include <vector>

namespace crosslane::tests {
namespace {

class Worker {
 public:
  Worker(const Program& program, int thread, MPI_Comm communicator, MPI_Win window)
      : program_(program),
        thread_(thread),
        communicator_(communicator),
        window_(window),
        local_(mix(program.seed, program.rank, thread)) {}

  void run(std::int64_t rounds) {
    for (round_ = 0; round_ < rounds; ++round_) once();
    if (left_out().forgotten_windows) return;
    // The threads of a rank make them in any order.
    for (MPI_Win forgotten : {MPI_WIN_NULL, MPI_WIN_NULL, MPI_WIN_NULL})
      CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, communicator_, &forgotten));
  }

 private:
  static constexpr std::size_t slot = 10000;

  void once() {
    const auto ranks = static_cast<std::size_t>(program_.size);
    const auto drawn = [this](int what) { return mix(program_.seed, thread_, round_, what); };
    const int shift = static_cast<int>(drawn(-1) % ranks);
    const int to = (program_.rank + shift) % program_.size,
              from = (program_.rank + program_.size - shift) % program_.size;
    const std::size_t bytes = 1 + drawn(-2) % slot;
    CROSSLANE_STEP("thread {}, round {}: {} bytes to rank {}", thread_, round_, bytes, to);
    Memory memory(program_.kind(local_), ranks * slot);
    memory.write(std::vector<std::byte>(memory.size()));
    CROSSLANE_MPI(MPI_Win_attach(window_, memory.data(), static_cast<MPI_Aint>(memory.size())));
    MPI_Aint mine = 0;
    std::vector<MPI_Aint> all(ranks);
    CROSSLANE_MPI(MPI_Get_address(memory.data(), &mine));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Iallgather(&mine, 1, MPI_AINT, all.data(), 1, MPI_AINT, communicator_, &request));
    polite_wait(request);

    Memory out(program_.kind(local_), bytes), in(program_.kind(local_), bytes);
    out.write(pattern(drawn(program_.rank), bytes));
    const int count = static_cast<int>(bytes);
    const MPI_Aint place = MPI_Aint_add(all[static_cast<std::size_t>(to)],
                                        static_cast<MPI_Aint>(static_cast<std::size_t>(program_.rank) * slot));
    CROSSLANE_MPI(MPI_Put(out.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, window_));
    CROSSLANE_MPI(MPI_Win_flush(to, window_));
    CROSSLANE_MPI(MPI_Get(in.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, window_));
    CROSSLANE_MPI(MPI_Win_flush(to, window_));
    CROSSLANE_CHECK(in.read() == out.read(), "thread {}, round {}: {} bytes through rank {}", thread_, round_, bytes,
                    to);
    polite_barrier(communicator_);
    CROSSLANE_MPI(MPI_Win_sync(window_));
    CROSSLANE_CHECK(memory.read(static_cast<std::size_t>(from) * slot, bytes) == pattern(drawn(from), bytes),
                    "thread {}, round {}: {} bytes from rank {} in {} memory", thread_, round_, bytes, from,
                    name(memory.kind()));
    CROSSLANE_MPI(MPI_Win_detach(window_, memory.data()));
    polite_barrier(communicator_);
  }

  const Program& program_;
  const int thread_;
  const MPI_Comm communicator_;
  const MPI_Win window_;
  Random local_;
  std::int64_t round_ = 0;
};

}  // namespace

void one_sided_dynamic_threads(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  const auto threads = program.option("threads", 3), rounds = program.option("cases", 20);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_lock_all(0, window));
  run_on_threads(program, threads, rounds, [&](int thread, MPI_Comm communicator) {
    return std::make_unique<Worker>(program, thread, communicator, window);
  });
  CROSSLANE_MPI(MPI_Win_unlock_all(window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_free(&window));
}

}  // namespace crosslane::tests
