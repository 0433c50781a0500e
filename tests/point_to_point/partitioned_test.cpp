// Partitioned communication (MPI 5.0, chapter 4) around a ring: partitions are written and announced in random order by
// every procedure, and each is read and written as soon as MPI_Parrived reports it. With --threads, a thread announces while another
// one waits for the request. Skipped where the MPI has none.
// It must not know Crosslane: the same program passes over a plain MPI in host memory.
#include "support/plain_mpi.h"
#include "support/program.h"
#include "support/sharing.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1

/// Elements of two ints with a gap of one between them and one behind, or of one int.
struct Element {
  explicit Element(bool gaps) : ints(gaps ? 4 : 1) {
    if (!gaps) return;
    MPI_Datatype pair = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_vector(2, 1, 2, MPI_INT, &pair));
    CROSSLANE_MPI(MPI_Type_create_resized(pair, 0, 4 * sizeof(int), &type));
    CROSSLANE_MPI(MPI_Type_commit(&type));
    CROSSLANE_MPI(MPI_Type_free(&pair));
  }
  ~Element() {
    if (type != MPI_INT) MPI_Type_free(&type);
  }
  Element(const Element&) = delete;
  Element& operator=(const Element&) = delete;
  [[nodiscard]] bool has(std::size_t i) const { return ints == 1 || i % 2 == 0; }

  std::size_t ints;
  MPI_Datatype type = MPI_INT;
};

constexpr int untouched = -5;

class Rank {
 public:
  explicit Rank(Program& program) : program_(program) { CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_)); }
  ~Rank() { MPI_Comm_free(&communicator_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(int cases) {
    for (number_ = 0; number_ < cases; ++number_) one_case();
    polite_barrier();
  }

  /// The even ranks send, the odd ones receive; what completes a request is under way before the first partition is announced.
  void run_threads(int cases) {
    for (number_ = 0; number_ < cases; ++number_) {
      if ((program_.rank ^ 1) < program_.size) one_threaded_case(program_.rank ^ 1, program_.rank % 2 == 0);
    }
    polite_barrier();
  }

 private:
  void one_threaded_case(int peer, bool sends) {
    Random random(mix(program_.seed, number_, peer / 2));
    partitions_ = random.between(1, 6);
    const int count = random.pick(std::vector{1, 100, 50000});
    part_ints_ = static_cast<std::size_t>(count);
    CROSSLANE_STEP("case {}: {} partitions of {} ints with threads", number_, partitions_, count);
    const auto all_ints = part_ints_ * static_cast<std::size_t>(partitions_);
    Memory memory(program_.kind(), all_ints * sizeof(int));
    MPI_Request request = MPI_REQUEST_NULL;
    if (sends) {
      CROSSLANE_MPI(
          MPI_Psend_init(memory.data(), partitions_, count, MPI_INT, peer, 2, communicator_, MPI_INFO_NULL, &request));
    } else {
      CROSSLANE_MPI(
          MPI_Precv_init(memory.data(), partitions_, count, MPI_INT, peer, 2, communicator_, MPI_INFO_NULL, &request));
    }
    for (int start = 0; start < 4; ++start) {
      memory.fill(std::vector<int>(all_ints, untouched));
      CROSSLANE_MPI(MPI_Start(&request));
      const bool inside = program_.local().chance(50);
      std::atomic<bool> waits{false};
      std::thread worker;
      // No such watching: MPICH refuses MPI_Parrived once another thread has completed the request.
      if (sends) {
        worker = std::thread([&] {
          if (program_.device() != nullptr) program_.device()->make_current();
          while (!waits) sched_yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          announce(memory, request, start);
        });
      }
      waits = true;
      if (inside) {
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      } else {
        polite_wait(request);
      }
      for (int part = 0; !sends && part < partitions_; ++part) check(memory, part, peer, start, Element(false));
      if (sends) worker.join();
    }
    CROSSLANE_MPI(MPI_Request_free(&request));
  }

  void one_case() {
    Random random(mix(program_.seed, number_));
    partitions_ = random.between(1, 8);
    int count = random.pick(std::vector{1, 3, 100, 4096, 50000});
    const bool gaps = random.chance(40) && gaps_;
    const auto most = in_pieces_ / (4 * sizeof(int)) / static_cast<std::size_t>(partitions_);
    if (gaps) count = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(count), most));
    const int starts = random.between(1, 4);
    const Element element(gaps);
    part_ints_ = static_cast<std::size_t>(count) * element.ints;
    const auto all_ints = part_ints_ * static_cast<std::size_t>(partitions_);
    CROSSLANE_STEP("case {}: {} partitions of {} {}, {} starts", number_, partitions_, count,
                   gaps ? "elements with gaps" : "ints", starts);
    Memory out(program_.kind(), all_ints * sizeof(int)), in(program_.kind(), all_ints * sizeof(int));
    const int right = (program_.rank + 1) % program_.size, left = (program_.rank + program_.size - 1) % program_.size;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    CROSSLANE_MPI(MPI_Psend_init(out.data(), partitions_, count, element.type, right, 1, communicator_, MPI_INFO_NULL,
                                 &requests[0]));
    CROSSLANE_MPI(MPI_Precv_init(in.data(), partitions_, count, element.type, left, 1, communicator_, MPI_INFO_NULL,
                                 &requests[1]));
    for (int start = 0; start < starts; ++start) {
      out.fill(std::vector<int>(all_ints, -1));
      in.fill(std::vector<int>(all_ints, untouched));
      // From the second start of a send to its last MPI_Pready no other MPI call: Open MPI 5.0 sends too early then.
      if (program_.local().chance(50)) {
        CROSSLANE_MPI(MPI_Startall(2, requests));
      } else {
        CROSSLANE_MPI(MPI_Start(&requests[1]));
        CROSSLANE_MPI(MPI_Start(&requests[0]));
      }
      announce(out, requests[0], start);
      const auto taken =
          program_.local().chance(70) ? watch(in, requests[1], left, start, element) : std::vector<bool>();
      for (auto* request : {&requests[0], &requests[1]}) {
        MPI_Status status;
        polite_wait(*request, &status);
        CROSSLANE_CHECK(*request != MPI_REQUEST_NULL, "completion freed a partitioned request");
      }
      for (int part = 0; part < partitions_; ++part) {
        if (!taken.empty() && taken[static_cast<std::size_t>(part)])
          check(in, part, start, std::vector<int>(part_ints_, ours(part, start)), ", written since it arrived");
        else
          check(in, part, left, start, element);
      }
    }
    for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  [[nodiscard]] std::vector<int> contents(int rank, int part, int start) const {
    std::vector<int> result(part_ints_);
    std::iota(result.begin(), result.end(), static_cast<int>(mix(program_.seed, number_, rank, part, start) >> 40));
    return result;
  }

  // A partition is written only when it is about to be announced.
  void announce(Memory& out, MPI_Request request, int start) {
    std::vector<int> order(static_cast<std::size_t>(partitions_));
    std::iota(order.begin(), order.end(), 0);
    program_.local().shuffle(order);
    const auto fill = [&](int part) {
      const auto values = contents(program_.rank, part, start);
      out.write(std::as_bytes(std::span(values)), static_cast<std::size_t>(part) * part_ints_ * sizeof(int));
    };
    switch (program_.local().below(3)) {
      case 0:
        for (const int part : order) {
          fill(part);
          CROSSLANE_MPI(MPI_Pready(part, request));
        }
        break;
      case 1: {
        const int cut = program_.local().between(0, partitions_ - 1);
        for (int part = cut; part < partitions_; ++part) fill(part);
        CROSSLANE_MPI(MPI_Pready_range(cut, partitions_ - 1, request));
        for (int part = 0; part < cut; ++part) fill(part);
        if (cut > 0) CROSSLANE_MPI(MPI_Pready_range(0, cut - 1, request));
        break;
      }
      default: {
        const int cut = program_.local().between(1, partitions_);
        for (int i = 0; i < cut; ++i) fill(order[static_cast<std::size_t>(i)]);
        CROSSLANE_MPI(MPI_Pready_list(cut, order.data(), request));
        for (int i = cut; i < partitions_; ++i) fill(order[static_cast<std::size_t>(i)]);
        if (cut < partitions_) CROSSLANE_MPI(MPI_Pready_list(partitions_ - cut, order.data() + cut, request));
        break;
      }
    }
  }

  // Reads each partition when MPI_Parrived reports it, before the whole is complete. It may be written then, too: some are, which
  // must stay so whatever is asked afterwards. Returns which.
  std::vector<bool> watch(Memory& in, MPI_Request request, int left, int start, const Element& element) {
    std::vector<bool> taken(static_cast<std::size_t>(partitions_));
    std::vector<int> missing(static_cast<std::size_t>(partitions_));
    std::iota(missing.begin(), missing.end(), 0);
    while (!missing.empty()) {
      const auto place = program_.local().below(missing.size());
      int arrived = 0;
      CROSSLANE_MPI(MPI_Parrived(request, missing[place], &arrived));
      if (arrived == 0) {
        sched_yield();
        continue;
      }
      const int part = missing[place];
      check(in, part, left, start, element);
      missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(place));
      if (program_.local().chance(50)) continue;
      const std::vector<int> values(part_ints_, ours(part, start));
      in.write(std::as_bytes(std::span(values)), static_cast<std::size_t>(part) * part_ints_ * sizeof(int));
      taken[static_cast<std::size_t>(part)] = true;
      CROSSLANE_MPI(MPI_Parrived(request, part, &arrived));
      CROSSLANE_CHECK(arrived != 0, "partition {} had arrived", part);
    }
    return taken;
  }

  static int ours(int part, int start) { return -100 - 10 * start - part; }

  void check(const Memory& in, int part, int left, int start, const Element& element) const {
    auto expected = contents(left, part, start);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!element.has(i)) expected[i] = untouched;
    check(in, part, start, expected, "");
  }

  void check(const Memory& in, int part, int start, const std::vector<int>& expected, const char* what) const {
    const auto got = in.read(static_cast<std::size_t>(part) * part_ints_ * sizeof(int), part_ints_ * sizeof(int));
    const auto wanted = std::as_bytes(std::span(expected));
    CROSSLANE_CHECK(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()),
                    "partition {} of start {} in {} memory{}", part, start, name(in.kind()), what);
  }

  Program& program_;
  const bool gaps_ = !plain_mpi_partitions_lose_gaps();
  const std::size_t in_pieces_ =  // the longest partitions with gaps, all together
      program_.device() == nullptr ? std::numeric_limits<std::size_t>::max() : longest_in_pieces();
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int number_ = 0, partitions_ = 1;
  std::size_t part_ints_ = 0;
};

#endif

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  const bool threads = std::find(argv, argv + argc, std::string_view("--threads")) != argv + argc;
  Program program(argc, argv, "point_to_point_partitioned", threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1
  const int cases = static_cast<int>(program.option("cases", 40));
  if (threads) {
    Rank(program).run_threads(cases);
  } else {
    Rank(program).run(cases);
  }
  return program.finish();
#else
  if (program.rank == 0) fmt::print(stderr, "skipped: this MPI has no partitioned communication\n");
  const int status = program.finish();
  return status == 0 ? 77 : status;
#endif
}
