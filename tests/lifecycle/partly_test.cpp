// A job of which every second rank has not loaded Crosslane, as where only one of its programs is started with it: what the others pass in GPU
// memory comes right, to and from host memory there, in order; and what cannot be is refused where it is asked for.
// It must not know how Crosslane tells who has loaded it.
#include "exchange.h"
#include "one_sided/to_next.h"
#include "support/plain_mpi.h"
#include "support/preload.h"
#include "support/refused.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace crosslane::tests {
namespace {

bool loads(int rank) { return rank % 2 == 0; }

class Job {
 public:
  explicit Job(Program& program)
      : program_(program), kind_(loads(program.rank) ? MemoryKind::device : MemoryKind::host) {}

  void run() {
    for (const int count : {1, 1000, 500000}) exchange(program_, kind_, count, 3);
    for (int round = 0; round < 20; ++round) messages(round);
    collectives(MPI_COMM_WORLD);
    CROSSLANE_STEP("among those that load it, and among the others");
    MPI_Comm alike = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, loads(program_.rank) ? 0 : 1, 0, &alike));
    collectives(alike);
    if (plain_mpi_has_windows(MPI_COMM_WORLD)) {
      window();
      dynamic_window();
    }
    CROSSLANE_MPI(MPI_Comm_free(&alike));
  }

 private:
  static std::vector<int> numbers(std::uint64_t seed, std::size_t count) {
    std::vector<int> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<int>(mix(seed, i) % 1000);
    return made;
  }

  // Each rank sends several messages of random length to a random other one, which probes for some and takes others from anybody.
  void messages(int round) {
    CROSSLANE_STEP("messages, round {}", round);
    constexpr int each = 4;
    const int shift = static_cast<int>(program_.shared().between(1, program_.size - 1));
    const int to = (program_.rank + shift) % program_.size,
              from = (program_.rank + program_.size - shift) % program_.size;
    std::vector<std::size_t> lengths(each);
    for (auto& length : lengths) length = program_.shared().between<std::size_t>(1, 1 << program_.shared().below(19));
    const auto seed = [&](int sender, int k) { return mix(program_.seed, round, sender, k); };
    std::vector<Memory> out;
    std::vector<MPI_Request> requests(each, MPI_REQUEST_NULL);
    for (int k = 0; k < each; ++k) {
      const std::size_t length = lengths[static_cast<std::size_t>(k)];
      out.emplace_back(kind_, length * sizeof(int));
      out.back().fill(numbers(seed(program_.rank, k), length));
      CROSSLANE_MPI(MPI_Isend(out.back().data(), static_cast<int>(length), MPI_INT, to, 7, MPI_COMM_WORLD,
                              &requests[static_cast<std::size_t>(k)]));
    }
    for (int k = 0; k < each; ++k) {
      const std::size_t length = lengths[static_cast<std::size_t>(k)];
      MPI_Status status{};
      int count = 0;
      if (program_.local().chance(50)) {
        int there = 0;
        while (there == 0) CROSSLANE_MPI(MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &there, &status));
        CROSSLANE_MPI(MPI_Get_count(&status, MPI_INT, &count));
        CROSSLANE_CHECK_EQUAL(static_cast<std::size_t>(count), length);
      }
      Memory in(kind_, length * sizeof(int));
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Irecv(in.data(), static_cast<int>(length), MPI_INT,
                              program_.local().chance(50) ? MPI_ANY_SOURCE : from, 7, MPI_COMM_WORLD, &request));
      polite_wait(request, &status);
      CROSSLANE_MPI(MPI_Get_count(&status, MPI_INT, &count));
      CROSSLANE_CHECK_EQUAL(static_cast<std::size_t>(count), length);
      CROSSLANE_CHECK_EQUAL(status.MPI_SOURCE, from);
      CROSSLANE_CHECK(in.values<int>() == numbers(seed(from, k), length), "message {} of {} numbers from rank {}", k,
                      length, from);
    }
    polite_waitall(requests);
    polite_barrier();
  }

  void collectives(MPI_Comm comm) {
    int rank = 0, size = 0;
    CROSSLANE_MPI(MPI_Comm_rank(comm, &rank));
    CROSSLANE_MPI(MPI_Comm_size(comm, &size));
    for (const std::size_t length : {std::size_t{3}, std::size_t{5000}, std::size_t{300000}}) {
      CROSSLANE_STEP("collectives of {} numbers among {} ranks", length, size);
      const int count = static_cast<int>(length);
      const auto n = static_cast<std::size_t>(size);
      std::vector<int> sums(length), all;
      for (int r = 0; r < size; ++r) {
        const auto theirs = numbers(mix(program_.seed, r), length);
        for (std::size_t i = 0; i < length; ++i) sums[i] += theirs[i];
        all.insert(all.end(), theirs.begin(), theirs.end());
      }
      Memory mine(kind_, length * sizeof(int)), result(kind_, length * sizeof(int)),
          gathered(kind_, n * length * sizeof(int));
      mine.fill(numbers(mix(program_.seed, rank), length));
      std::vector<MPI_Request> requests(2);
      CROSSLANE_MPI(MPI_Iallreduce(mine.data(), result.data(), count, MPI_INT, MPI_SUM, comm, requests.data()));
      CROSSLANE_MPI(MPI_Iallgather(mine.data(), count, MPI_INT, gathered.data(), count, MPI_INT, comm, &requests[1]));
      polite_waitall(requests);
      CROSSLANE_CHECK(result.values<int>() == sums, "MPI_Iallreduce of {} numbers", length);
      CROSSLANE_CHECK(gathered.values<int>() == all, "MPI_Iallgather of {} numbers", length);
      for (int root = 0; root < size; ++root) {
        CROSSLANE_MPI(MPI_Bcast(rank == root ? mine.data() : result.data(), count, MPI_INT, root, comm));
        if (rank != root) {
          CROSSLANE_CHECK(result.values<int>() == numbers(mix(program_.seed, root), length),
                          "MPI_Bcast of {} numbers from {}", length, root);
        }
      }
    }
  }

  // The rank's own number, into the next one's window.
  void put_number(MPI_Win win, MPI_Aint place) {
    Memory out(kind_, sizeof(int));
    out.fill(std::vector<int>{program_.rank + 1});
    put_to_next(program_, win, out.data(), sizeof(int), place);
  }
  [[nodiscard]] int number_before() const { return (program_.rank + program_.size - 1) % program_.size + 1; }

  void window() {
    CROSSLANE_STEP("a window");
    Memory memory(kind_, 2 * sizeof(int));
    memory.fill(std::vector<int>{0, 0});
    MPI_Win win = MPI_WIN_NULL;
    CROSSLANE_MPI(MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size()), sizeof(int), MPI_INFO_NULL,
                                 MPI_COMM_WORLD, &win));
    put_number(win, 1);
    CROSSLANE_CHECK((memory.values<int>() == std::vector<int>{0, number_before()}), "not what was put");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&win));
  }

  // Others could not tell where the GPU memory's copy is.
  void dynamic_window() {
    CROSSLANE_STEP("a dynamic window");
    MPI_Win win = MPI_WIN_NULL;
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    CROSSLANE_MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    if (loads(program_.rank)) {
      const Memory refused(MemoryKind::device, 100);
      expect_refused(MPI_Win_attach(win, refused.data(), 100), {"MPI_Win_attach", "base", "GPU", "MPI_Win_create"});
    }
    Memory memory(MemoryKind::host, 2 * sizeof(int));
    memory.fill(std::vector<int>{0, 0});
    CROSSLANE_MPI(MPI_Win_attach(win, memory.data(), static_cast<MPI_Aint>(memory.size())));
    const MPI_Aint theirs = address_at_next(program_, memory);
    put_number(win, MPI_Aint_add(theirs, sizeof(int)));
    CROSSLANE_CHECK((memory.values<int>() == std::vector<int>{0, number_before()}), "not what was put");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_detach(win, memory.data()));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&win));
  }

  Program& program_;
  MemoryKind kind_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  if (!loads(rank_of_launcher())) {
    // Not the library of these tests that lets others run.
    preload_again(argv, [](const std::string& libraries) {
      return without(without(libraries, "libcrosslane_openmpi"), "libcrosslane_mpich");
    });
  }
  Program program(argc, argv, "lifecycle_partly");
  Job(program).run();
  return program.finish();
}
