// Enqueued collectives whose blocks differ, and barriers: random sizes with zeros, blocks in any order, in place, any root, on
// communicators of all shapes, several in flight, in graphs too, against what must come out.
//   --most <bytes>  the largest block
#include "direct/uneven.h"
#include "native/enqueued.h"

#include <crosslane/crosslane.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

int enqueue(const Uneven& call, MPI_Comm comm, const UnevenRun& run, const Stream& stream) {
  const NothingAllocated scope;
  const UnevenRun::Side &send = run.sent(), &receive = run.got();
  const MPI_Datatype type = call.element->base.type;
  CUstream const on = stream.handle();
  switch (call.what) {
    case What::allgatherv:
      return crosslane_allgatherv_enqueue(run.from(), send.count(), send.type, run.to(), receive.wide_counts.data(),
                                          receive.wide_places.data(), receive.type, comm, on);
    case What::gatherv:
      return crosslane_gatherv_enqueue(run.from(), send.count(), send.type, run.to(), receive.wide_counts.data(),
                                       receive.wide_places.data(), receive.type, call.root, comm, on);
    case What::scatterv:
      return crosslane_scatterv_enqueue(run.from(), send.wide_counts.data(), send.wide_places.data(), send.type,
                                        run.to(), receive.count(), receive.type, call.root, comm, on);
    case What::alltoallv:
      return crosslane_alltoallv_enqueue(run.from(), send.wide_counts.data(), send.wide_places.data(), send.type,
                                         run.to(), receive.wide_counts.data(), receive.wide_places.data(), receive.type,
                                         comm, on);
    case What::reduce_scatter:
      return crosslane_reduce_scatter_enqueue(run.from(), run.to(), run.wide_shares().data(), type, call.op, comm, on);
  }
  return MPI_ERR_ARG;
}

bool has_gaps(const Base& base) { return std::ranges::find(base.padding, std::uint8_t{1}) != base.padding.end(); }

class Test {
 public:
  explicit Test(Program& program) : program_(program), most_(static_cast<std::size_t>(program.option("most", 400000))) {
    add(MPI_COMM_WORLD, "the world", 0);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made);
    add(made, "all ranks in reversed order", 1000);
    MPI_Comm_split(MPI_COMM_WORLD, program.rank / 2, 0, &made);
    add(made, "pairs", most_);
    MPI_Comm_split(MPI_COMM_WORLD, program.rank, 0, &made);
    add(made, "each rank alone", 0);
  }

  void run() {
    const auto batches = program_.option("cases", 100) / batch;
    for (std::int64_t number = 0; number < batches; ++number) run_batch(number);
    reuse_buffers();
    for (const Job& job : jobs_) wait_in_barrier(job);
    for (const Job& job : jobs_) CROSSLANE_CHECK_EQUAL(missing(job.communicator()), -1);
    polite_barrier();  // every rank's streams are past all calls
    for (const Job& job : jobs_) {
      MPI_Comm made = job.communicator();
      if (made != MPI_COMM_WORLD) MPI_Comm_free(&made);
    }
  }

 private:
  static constexpr std::int64_t batch = 6;

  void add(MPI_Comm communicator, const char* name, std::size_t largest) {
    CROSSLANE_STEP("preparing {}", name);
    jobs_.emplace_back(program_, communicator, name);
    prepare(communicator, largest);
  }

  [[nodiscard]] Uneven make(Random& random, const Job& job) const {
    const auto what = static_cast<What>(random.below(uneven_names.size()));
    Uneven call = make_uneven(what, job.size(), random, most_);
    // Contiguous is what may be enqueued; and in place only blocks of one size are reduced.
    if (what != What::reduce_scatter && has_gaps(call.element->base)) call.element = &elements().front();
    if (what == What::reduce_scatter && random.chance(30)) {
      call = make_even(what, job.size(), random, std::min<std::size_t>(most_, random.below(100000)));
      call.in_place = random.chance(50);
    }
    if (what == What::reduce_scatter && call.in_place)
      call.in_place = std::ranges::all_of(call.units, [&](std::size_t units) { return units == call.units.front(); });
    return call;
  }

  // Several calls in flight on one stream, then all are compared.
  void run_batch(std::int64_t number) {
    Random& local = program_.local();
    std::vector<std::unique_ptr<UnevenRun>> runs;
    std::vector<std::unique_ptr<Graph>> graphs;
    for (std::int64_t each = 0; each < batch; ++each) {
      Random random(mix(program_.seed, number, each));  // the same on all ranks
      const Job& job = jobs_[random.below(jobs_.size())];
      const Uneven call = make(random, job);
      CROSSLANE_STEP("{}: {}, seed {}", job.name(), call.text(), call.seed);
      runs.push_back(std::make_unique<UnevenRun>(
          call, job, UnevenManners{.kind = [](Random&) { return MemoryKind::device; }, .derived = 0, .absent = 50},
          local));
      runs.back()->load(local);
      const std::int64_t before = direct_calls(call.name());
      if (random.chance(25)) {
        graphs.push_back(std::make_unique<Graph>(stream_));
        CROSSLANE_MPI(enqueue(call, job.communicator(), *runs.back(), stream_));
        graphs.back()->end();
        graphs.back()->launch();
      } else {
        CROSSLANE_MPI(enqueue(call, job.communicator(), *runs.back(), stream_));
      }
      const bool direct = job.size() > 1 && (!call.sizes_known() || call.largest() > 0);
      CROSSLANE_CHECK_EQUAL(direct_calls(call.name()) - before, direct ? 1 : 0);
      if (random.chance(20)) CROSSLANE_MPI(crosslane_barrier_enqueue(job.communicator(), stream_.handle()));
    }
    CROSSLANE_STEP("waiting for batch {}", number);
    stream_.finish();
    for (const auto& run : runs) run->check();
  }

  // A graph of a call of each kind, launched often.
  void reuse_buffers() {
    Random& local = program_.local();
    const Job& job = jobs_.front();
    std::vector<std::unique_ptr<UnevenRun>> runs;
    std::vector<Uneven> calls;
    for (std::size_t what = 0; what < uneven_names.size(); ++what) {
      Random random(mix(program_.seed, static_cast<int>(what), 99));
      Uneven call = make_uneven(static_cast<What>(what), job.size(), random, 5000);
      if (has_gaps(call.element->base)) call.element = &elements().front();
      std::tie(call.op_name, call.op) = call.element->ops.front();
      call.in_place = false;  // which changes what the next launch reads
      CROSSLANE_STEP("in a graph: {}, seed {}", call.text(), call.seed);
      runs.push_back(std::make_unique<UnevenRun>(
          call, job, UnevenManners{.kind = [](Random&) { return MemoryKind::device; }}, local));
      calls.push_back(std::move(call));
    }
    Graph graph(stream_);
    for (std::size_t what = 0; what < calls.size(); ++what)
      CROSSLANE_MPI(enqueue(calls[what], job.communicator(), *runs[what], stream_));
    graph.end();
    for (int round = 0; round < 10; ++round) {
      for (const auto& run : runs) run->load(local);
      polite_barrier();  // the next launch's data is there on all ranks before any rank's is looked at
      for (int launch = 0; launch < 10; ++launch) graph.launch();
      stream_.finish();
      for (const auto& run : runs) run->check();
    }
  }

  // No stream gets past it before the last one came.
  void wait_in_barrier(const Job& job) {
    CROSSLANE_STEP("{}: barriers", job.name());
    for (int last = 0; last < job.size(); ++last) {
      if (job.me() != last) {
        CROSSLANE_MPI(crosslane_barrier_enqueue(job.communicator(), stream_.handle()));
        CROSSLANE_CHECK(cuStreamQuery(stream_.handle()) == CUDA_ERROR_NOT_READY,
                        "a stream is past a barrier too early");
        CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_INT, last, 3, job.communicator()));
      } else {
        for (int other = 1; other < job.size(); ++other)
          CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_INT, MPI_ANY_SOURCE, 3, job.communicator(), MPI_STATUS_IGNORE));
        CROSSLANE_MPI(crosslane_barrier_enqueue(job.communicator(), stream_.handle()));
      }
      stream_.finish();
    }
  }

  Program& program_;
  std::size_t most_;
  std::vector<Job> jobs_;
  Stream stream_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_uneven");
  if (can_prepare(program)) Test(program).run();
  return program.finish();
}
