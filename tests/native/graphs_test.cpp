// Enqueued collectives in graphs: captured once, launched a thousand times in a row, with data that each launch makes of the last
// one's, and new data now and then. The host plays all ranks.
//   --launches <n>      --words <n>  of 4 bytes in a block      --prepared 1  buffers are mapped by all ranks
//   --large 1           ranks have large windows
#include "native/enqueued.h"

#include "support/sharing.h"

#include <crosslane/crosslane.h>

#include <cstdint>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

using Words = std::vector<std::uint32_t>;

// What all ranks hold, a vector each. A launch exchanges blocks, then combines what ranks before have: both can be undone, so that
// no launch's effect is lost.
class Model {
 public:
  Model(std::size_t ranks, std::size_t block) : ranks_(ranks), block_(block) {}

  void start(std::uint64_t seed) {
    all_.clear();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      Random random(mix(seed, rank));
      Words words(ranks_ * block_);
      for (auto& word : words) word = static_cast<std::uint32_t>(random.next());
      all_.push_back(std::move(words));
    }
  }
  void launch() {
    std::vector<Words> exchanged = all_;
    for (std::size_t to = 0; to < ranks_; ++to)
      for (std::size_t from = 0; from < ranks_; ++from)
        for (std::size_t at = 0; at < block_; ++at) exchanged[to][from * block_ + at] = all_[from][to * block_ + at];
    for (std::size_t rank = 1; rank < ranks_; ++rank)
      for (std::size_t at = 0; at < exchanged[rank].size(); ++at) exchanged[rank][at] ^= exchanged[rank - 1][at];
    all_ = std::move(exchanged);
  }
  [[nodiscard]] const Words& of(int rank) const { return all_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Words sums() const {
    Words sums(ranks_ * block_);
    for (const Words& words : all_)
      for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += words[at];
    return sums;
  }

 private:
  std::size_t ranks_, block_;
  std::vector<Words> all_;
};

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        block_(static_cast<std::size_t>(program.option("words", 75))),
        ranks_(static_cast<std::size_t>(program.size)),
        model_(ranks_, block_),
        data_(MemoryKind::device, bytes()),
        exchanged_(MemoryKind::device, bytes()),
        sums_(MemoryKind::device, bytes()),
        mine_(MemoryKind::device, block_ * sizeof(std::uint32_t)),
        gathered_(MemoryKind::device, bytes()) {
    std::vector<void*> buffers;
    if (program.option("prepared", 0) != 0)
      buffers = {data_.data(), exchanged_.data(), sums_.data(), mine_.data(), gathered_.data()};
    // For calls of unknown size: with large windows.
    prepare(MPI_COMM_WORLD, program.option("large", 0) != 0 ? 0 : bytes(), buffers);
  }

  void run() {
    CROSSLANE_STEP("capturing");
    const std::int64_t before = direct_calls(Kind::alltoall);
    Graph graph(stream_);
    enqueue_all();
    graph.end();
    CROSSLANE_CHECK_EQUAL(direct_calls(Kind::alltoall) - before, 1);
    if (const std::string algorithm = program_.text_option("algorithm", ""); !algorithm.empty()) {
      for (const Kind kind : {Kind::alltoall, Kind::allreduce, Kind::allgather}) {
        const bool exists = algorithm != "ring" || kind != Kind::alltoall;
        CROSSLANE_CHECK_EQUAL(direct_calls(kind, algorithm.c_str()), exists ? 1 : 0);
      }
    }
    start(0);
    const auto launches = program_.option("launches", 1000);
    for (std::int64_t launch = 1; launch <= launches; ++launch) {
      const auto what = program_.shared().below(100);
      if (what == 0) {
        enqueue_all();  // the same without the graph counts on
      } else {
        graph.launch();
      }
      model_.launch();
      if (what != 1 && launch != launches) continue;
      check(launch);
      start(static_cast<std::uint64_t>(launch));
    }
    CROSSLANE_CHECK_EQUAL(missing(MPI_COMM_WORLD), -1);
    CROSSLANE_STEP("a blocking call at the end");
    Memory one(MemoryKind::device, sizeof(int));
    one.fill(std::vector<int>{program_.rank});
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, one.data(), 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    CROSSLANE_CHECK_EQUAL(one.values<int>().front(), program_.size - 1);
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return ranks_ * block_ * sizeof(std::uint32_t); }

  void enqueue_all() {
    const NothingAllocated scope;
    const auto block = static_cast<MPI_Count>(block_);
    const auto all = static_cast<MPI_Count>(block_ * ranks_);
    const MPI_Comm comm = MPI_COMM_WORLD;
    CUstream const on = stream_.handle();
    CROSSLANE_MPI(crosslane_alltoall_enqueue(data_.data(), block, MPI_UINT32_T, exchanged_.data(), block, MPI_UINT32_T,
                                             comm, on));
    CROSSLANE_MPI(crosslane_scan_enqueue(exchanged_.data(), data_.data(), all, MPI_UINT32_T, MPI_BXOR, comm, on));
    CROSSLANE_MPI(crosslane_allreduce_enqueue(data_.data(), sums_.data(), all, MPI_UINT32_T, MPI_SUM, comm, on));
    // The same in two halves, and not in rank order of kinds: what came of it must be the same.
    CROSSLANE_MPI(
        crosslane_reduce_scatter_block_enqueue(data_.data(), mine_.data(), block, MPI_UINT32_T, MPI_SUM, comm, on));
    CROSSLANE_MPI(crosslane_allgather_enqueue(mine_.data(), block, MPI_UINT32_T, gathered_.data(), block, MPI_UINT32_T,
                                              comm, on));
  }

  void start(std::uint64_t seed) {
    model_.start(mix(program_.seed, seed));
    data_.fill(model_.of(program_.rank));
  }

  void check(std::int64_t launch) {
    CROSSLANE_STEP("after launch {}", launch);
    stream_.finish();
    CROSSLANE_CHECK(data_.values<std::uint32_t>() == model_.of(program_.rank), "data is wrong");
    CROSSLANE_CHECK(sums_.values<std::uint32_t>() == model_.sums(), "the all-reduce is wrong");
    CROSSLANE_CHECK(gathered_.values<std::uint32_t>() == model_.sums(), "reduce-scatter and all-gather are wrong");
  }

  Program& program_;
  std::size_t block_, ranks_;
  Model model_;
  Memory data_, exchanged_, sums_, mine_, gathered_;
  Stream stream_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_graphs");
  if (program.text_option("algorithm", "") == "ring" && share_a_gpu(MPI_COMM_WORLD)) {
    program.skip("rings are for GPUs of their own");
  } else if (can_prepare(program)) {
    Test(program).run();
  }
  polite_barrier();
  return program.finish();
}
