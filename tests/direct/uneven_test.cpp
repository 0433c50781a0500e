// Direct collectives whose blocks differ (v forms and reduce-scatter), on communicators of all kinds, each rank with buffers of its own
// kind, under the preferences that the environment gives.
//   --memory device       every rank passes memory of its GPU: each call must go direct, by --algorithm where that takes the call
//   --memory mixed|random some ranks pass other memory, or derived types: any way is right
//   --node, --direct, --most   as direct_test.cpp has them
#include "direct/uneven.h"
#include "direct/jobs.h"
#include "support/linger.h"

#include <algorithm>
#include <utility>

namespace crosslane::tests {
namespace {

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        algorithm_(program.text_option("algorithm", "")),
        most_(static_cast<std::size_t>(program.option("most", 400000))),
        strict_(program.memory() == "device"),
        direct_(program.option("direct", 1) != 0) {}

  void run() {
    const Jobs jobs(program_);
    jobs.warm_up();
    const auto cases = program_.option("cases", 60);
    for (std::int64_t number = 0; number < cases; ++number) {
      Random random(mix(program_.seed, number, 31));  // the same on all ranks
      const Job* const job = jobs.at(random.below(jobs.size()));
      const auto what = static_cast<What>(number % static_cast<std::int64_t>(uneven_names.size()));
      if (job == nullptr) continue;
      const Uneven call = make_uneven(what, job->size(), random, most_);
      run(call, *job, 2 + static_cast<int>(random.below(2)));
    }
    for (std::size_t what = 0; what < uneven_names.size(); ++what) run_once(static_cast<What>(what), *jobs.at(0));
  }

 private:
  // Whatever the dice said: each by its algorithm once.
  void run_once(What what, const Job& world) {
    Random random(mix(program_.seed, static_cast<int>(what), 77));
    const Uneven call =
        make_even(what, world.size(), random, algorithm_ == "ll" ? 4000 : std::min<std::size_t>(most_, 300000));
    const std::int64_t before = by_name(call);
    run(call, world, 3);
    if (algorithm_.empty() || !strict_ || !may_go_direct(world) || !exists(call)) return;
    CROSSLANE_CHECK(by_name(call) > before, "{} did not run by {}", call.text(), algorithm_);
  }

  [[nodiscard]] bool exists(const Uneven& call) const {
    if (algorithm_ == "window") return call.sizes_known();
    if (algorithm_ == "pairwise") return !call.sizes_known();
    if (algorithm_ == "copy_engine") return call.name() != std::string_view("reduce_scatter");
    return true;
  }
  [[nodiscard]] std::int64_t by_name(const Uneven& call) const { return direct_calls(call.name(), algorithm_.c_str()); }

  [[nodiscard]] bool may_go_direct(const Job& job) const {
    return direct_ && job.size() > 1 && job.on_one_node() && !job.in_turns();
  }

  void run(Uneven call, const Job& job, int repeats) {
    const bool may = may_go_direct(job) && (!call.sizes_known() || call.largest() > 0);
    // MPI itself may combine in another order; and neither MPI exchanges empty blocks, or ones of derived types, in place by itself.
    call.whole = !strict_ || !may;
    if (call.whole && !call.element->exact && call.op == MPI_PROD)
      std::tie(call.op_name, call.op) = call.element->ops.front();
    if (call.whole && call.what == What::alltoallv) call.in_place = false;
#if CROSSLANE_TEST_MPI_MPICH
    // MPICH 4.0.2 crashes in all-gathers of a rank alone, and cannot scatter what has gaps.
    if (job.size() == 1 && call.what == What::allgatherv) return;
    if (call.whole && call.what != What::reduce_scatter && has_gaps(*call.element)) call.element = &elements().front();
    // In place it moves a rank's own block to the front by memcpy, and aborts where the two places overlap.
    if (call.whole && call.what == What::reduce_scatter) call.in_place = false;
#endif
    // Of a rank alone, Open MPI (4.1) takes displacements in bytes for ones in extents.
    const bool typed = call.what == What::alltoallv && job.size() > 1 && mix(call.seed) % 2 == 0;
    CROSSLANE_STEP("{}: {}{}, seed {}", job.name(), call.text(), typed ? ", by types" : "", call.seed);
    Random& local = program_.local();
    // MPICH takes two null buffers for the same one.
    UnevenRun run(call, job,
                  {.kind = [this](Random& random) { return program_.kind(random); },
                   .derived = strict_ ? 0U : 40U,
                   .absent = strict_ && may ? 50U : 0U},
                  local);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      run.load(local);
      const std::int64_t before = direct_calls(call.name()), named = by_name(call);
      // Ranks arrive in any order.
      linger(local.chance(30) ? local.below(200) : 0);
      if (typed)
        issue_typed(job.communicator(), run, *call.element, local);
      else
        issue(call, job.communicator(), run, local.chance(30));
      run.check();
      const std::int64_t direct = direct_calls(call.name()) - before, by = by_name(call) - named;
      if (!may) {
        CROSSLANE_CHECK(direct == 0, "a call that should go through the host went direct");
      } else if (strict_) {
        CROSSLANE_CHECK(direct == 1, "{} calls went direct instead of one", direct);
        if (algorithm_ == "window" || algorithm_ == "pairwise")
          CROSSLANE_CHECK(by == (exists(call) ? 1 : 0), "{} by {}", by, algorithm_);
      }
    }
  }

  // MPI_Alltoallw: places in bytes, and now and then a whole block is one element of a type of its own.
  static void issue_typed(MPI_Comm comm, const UnevenRun& run, const Element& element, Random& local) {
    struct Blocks {
      std::vector<int> counts, places;
      std::vector<MPI_Datatype> types, made;
      Blocks(const UnevenRun::Side& side, const Element& element, Random& local) : counts(side.counts) {
        MPI_Aint lower = 0, extent = static_cast<MPI_Aint>(element.base.extent);
        if (side.type != MPI_DATATYPE_NULL) CROSSLANE_MPI(MPI_Type_get_extent(side.type, &lower, &extent));
        for (std::size_t block = 0; block < counts.size(); ++block) {
          places.push_back(side.places[block] * static_cast<int>(extent));
          types.push_back(side.type);
          if (counts[block] == 0 || local.chance(60)) continue;
          CROSSLANE_MPI(MPI_Type_contiguous(counts[block], side.type, &made.emplace_back()));
          CROSSLANE_MPI(MPI_Type_commit(&made.back()));
          types[block] = made.back();
          counts[block] = 1;
        }
      }
      Blocks(const Blocks&) = delete;
      Blocks& operator=(const Blocks&) = delete;
      ~Blocks() {
        for (MPI_Datatype& type : made) MPI_Type_free(&type);
      }
    };
    const Blocks send(run.sent(), element, local), receive(run.got(), element, local);
    CROSSLANE_MPI(MPI_Alltoallw(run.from(), send.counts.data(), send.places.data(), send.types.data(), run.to(),
                                receive.counts.data(), receive.places.data(), receive.types.data(), comm));
  }

  static void issue(const Uneven& call, MPI_Comm comm, const UnevenRun& run, bool large) {
    const MPI_Datatype base = call.element->base.type;
    const UnevenRun::Side &send = run.sent(), &receive = run.got();
    const void* const from = run.from();
    void* const to = run.to();
#if MPI_VERSION >= 4
    if (large) {
      switch (call.what) {
        case What::allgatherv:
          CROSSLANE_MPI(MPI_Allgatherv_c(from, send.count(), send.type, to, receive.wide_counts.data(),
                                         receive.wide_places.data(), receive.type, comm));
          return;
        case What::gatherv:
          CROSSLANE_MPI(MPI_Gatherv_c(from, send.count(), send.type, to, receive.wide_counts.data(),
                                      receive.wide_places.data(), receive.type, call.root, comm));
          return;
        case What::scatterv:
          CROSSLANE_MPI(MPI_Scatterv_c(from, send.wide_counts.data(), send.wide_places.data(), send.type, to,
                                       receive.count(), receive.type, call.root, comm));
          return;
        case What::alltoallv:
          CROSSLANE_MPI(MPI_Alltoallv_c(from, send.wide_counts.data(), send.wide_places.data(), send.type, to,
                                        receive.wide_counts.data(), receive.wide_places.data(), receive.type, comm));
          return;
        case What::reduce_scatter:
          CROSSLANE_MPI(MPI_Reduce_scatter_c(from, to, run.wide_shares().data(), base, call.op, comm));
          return;
      }
    }
#else
    static_cast<void>(large);
#endif
    switch (call.what) {
      case What::allgatherv:
        CROSSLANE_MPI(MPI_Allgatherv(from, send.count(), send.type, to, receive.counts.data(), receive.places.data(),
                                     receive.type, comm));
        break;
      case What::gatherv:
        CROSSLANE_MPI(MPI_Gatherv(from, send.count(), send.type, to, receive.counts.data(), receive.places.data(),
                                  receive.type, call.root, comm));
        break;
      case What::scatterv:
        CROSSLANE_MPI(MPI_Scatterv(from, send.counts.data(), send.places.data(), send.type, to, receive.count(),
                                   receive.type, call.root, comm));
        break;
      case What::alltoallv:
        CROSSLANE_MPI(MPI_Alltoallv(from, send.counts.data(), send.places.data(), send.type, to, receive.counts.data(),
                                    receive.places.data(), receive.type, comm));
        break;
      case What::reduce_scatter:
        CROSSLANE_MPI(MPI_Reduce_scatter(from, to, run.shares().data(), base, call.op, comm));
        break;
    }
  }

  Program& program_;
  std::string algorithm_;
  std::size_t most_;
  bool strict_, direct_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  crosslane::tests::Program program(argc, argv, "direct_uneven");
  crosslane::tests::Test(program).run();
  return program.finish();
}
