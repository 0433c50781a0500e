// Random collectives on random sub-communicators, from several threads at once: all are right, and those that can go direct do.
//   --threads <n>        each has communicators of its own (default 2)
//   --communicators <n>  of each thread (default 4)
//   --cases <n>          of all threads together (default 100); by hand, on real GPUs, thousands
//   --most <bytes>       what a rank sends or receives at most (default 8 MiB)
//   --memory device      every rank passes memory of its GPU: it is known how many calls go direct
#include "direct/job.h"
#include "support/linger.h"
#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

std::int64_t all_direct_calls() {
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < kind_names.size(); ++kind) sum += direct_calls(static_cast<Kind>(kind));
  return sum;
}

// Few are large: to check them takes longer than all the rest.
std::size_t random_bytes(Random& random) {
  const auto share = random.below(100);
  if (share < 45) return random.below(kib);
  if (share < 85) return random.between(kib, 64 * kib);
  if (share < 97) return random.between(64 * kib, mib);
  return random.between(mib, 8 * mib);
}

// What one thread does, on its own communicators. All ranks draw the same, and each thread takes its cases in one order: whoever waits
// does so for ranks that wait for nothing later.
class Worker {
 public:
  /// Collective over the world, as is the destructor.
  Worker(const Program& program, std::int64_t thread)
      : program_(program),
        local_(mix(program.seed, thread, program.rank)),
        most_(static_cast<std::size_t>(program.option("most", 8 * mib))),
        strict_(program.memory() == "device"),
        manners_{.kind = [&program](Random& random) { return program.kind(random); },
                 .derived = strict_ ? 0U : 30U,
                 .most_derived = 64 * kib} {
    if (EntryPoint::find("Allreduce", Form::persistent, false).address != nullptr) forms_.push_back(Form::persistent);
#if CROSSLANE_TEST_MPI_OPENMPI
    // Open MPI 4.1.4 hangs by itself where threads duplicate communicators at once that have ranks in common.
    duplicates_ = thread == 0;
#endif
    const auto communicators = program.option("communicators", 4);
    for (std::int64_t which = 0; which < communicators; ++which) add(thread, which);
  }
  ~Worker() {
    for (const auto& job : jobs_) {
      if (job == nullptr) continue;
      MPI_Comm communicator = job->communicator();
      MPI_Comm_free(&communicator);
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void run(std::int64_t number) {
    Random random(mix(program_.seed, number, 3));
    const auto& job = random.pick(jobs_);
    if (job == nullptr) return;
    if (random.chance(15) && duplicates_) {
      run_on_duplicate(*job, random, number);
    } else {
      run(*job, random, number, true);
    }
  }

  /// Whatever the dice said: on each communicator one that goes direct even where ranks take turns.
  void run_last() {
    for (const auto& job : jobs_) {
      if (job == nullptr) continue;
      const Case what = sum_of_ints(direct_in_turns_from / sizeof(int), mix(program_.seed, 77));
      count(*job, what, true);
      job->run(what, on_the_gpu(), local_);
    }
  }

  /// Calls of this rank that must have gone direct, and others that may have.
  [[nodiscard]] std::int64_t certain() const { return certain_; }
  [[nodiscard]] std::int64_t possible() const { return possible_; }

 private:
  // Some of the world's ranks, in any order.
  void add(std::int64_t thread, std::int64_t which) {
    Random random(mix(program_.seed, thread, which, 7));
    std::vector<int> ranks(static_cast<std::size_t>(program_.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    random.shuffle(ranks);
    ranks.resize(random.between(std::size_t{2}, ranks.size()));
    const auto me = std::ranges::find(ranks, program_.rank);
    MPI_Comm made = MPI_COMM_NULL;
    CROSSLANE_STEP("thread {}: communicator {} is made", thread, which);
    CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, me == ranks.end() ? MPI_UNDEFINED : 0,
                                 static_cast<int>(me - ranks.begin()), &made));
    jobs_.push_back(nullptr);
    if (made == MPI_COMM_NULL) return;
    std::string name = fmt::format("thread {}, ranks", thread);
    for (const int rank : ranks) name += fmt::format(" {}", rank);
    jobs_.back() = std::make_unique<Job>(program_, made, name);
    jobs_.back()->warm_up();
  }

  // One that is gone after a case, while other threads go on; and may be gone before calls on it go direct.
  void run_on_duplicate(const Job& parent, Random& random, std::int64_t number) {
    CROSSLANE_STEP("case {}, {}: a duplicate is made", number, parent.name());
    MPI_Comm made = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(parent.communicator(), &made));
    {
      const Job job(program_, made, parent.name() + ", a duplicate");
      const bool prepared = random.chance(50);
      if (prepared) job.warm_up();
      run(job, random, number, prepared);
    }
    CROSSLANE_STEP("case {}, {}: the duplicate is freed", number, parent.name());
    CROSSLANE_MPI(MPI_Comm_free(&made));
  }

  void run(const Job& job, Random& random, std::int64_t number, bool prepared) {
    Case what = random_case(random, job.size());
    const Form form = random.pick(forms_);
    if (!prepared) what.repeats = 3;  // of which the last one may go direct
    if (form == Form::persistent && plain_mpi().persistent_collectives_read_too_early) what.repeats = 1;
    // The first start of a persistent one is the MPI's, and so are those before all ranks are past it.
    const bool certain = strict_ && prepared && form != Form::persistent;
    if (!certain || job.in_turns()) leave_to_mpi(what);
    CROSSLANE_STEP("case {}, {}: {}, form {}, seed {}", number, job.name(), what.text(), static_cast<int>(form),
                   what.seed);
    count(job, what, certain);
    run(job, what, form);
  }

  Case random_case(Random& random, int ranks) const {
    Case what;
    what.kind = static_cast<Kind>(random.below(kind_names.size()));
    what.element = &random.pick(elements());
    std::tie(what.op_name, what.op) = random.pick(what.element->ops);
    what.units = std::min(random_bytes(random), most_) / what.element->base.extent;
    if (in_blocks(what.kind)) what.units /= static_cast<std::size_t>(ranks);
    what.root = random.between(0, ranks - 1);
    what.in_place = what.kind != Kind::broadcast && random.chance(30);
    what.repeats = random.between(1, 3);
    what.seed = random.next();
    return what;
  }

  void run(const Job& job, const Case& what, Form form) {
    Job::Run run = job.make(what, manners_, local_);
    MPI_Request request = MPI_REQUEST_NULL;
    for (int repeat = 0; repeat < what.repeats; ++repeat) {
      job.load(run, local_);
      // Ranks and threads arrive in any order.
      linger(local_.chance(30) ? local_.below(200) : 0);
      if (form != Form::persistent || repeat == 0) job.call(run, form, &request);
      if (form == Form::persistent) CROSSLANE_MPI(MPI_Start(&request));
      if (form != Form::blocking) wait(request);
      job.check(run);
    }
    if (form == Form::persistent) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  void wait(MPI_Request& request) {
    if (local_.chance(50)) {
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      polite_wait(request);
    }
  }

  void count(const Job& job, const Case& what, bool certain) {
    if (what.units > 0 && job.goes_direct(what)) (certain ? certain_ : possible_) += what.repeats;
  }

  const Program& program_;
  Random local_;
  std::size_t most_;
  bool strict_, duplicates_ = true;
  Manners manners_;
  std::vector<Form> forms_{Form::blocking, Form::nonblocking};
  std::vector<std::unique_ptr<Job>> jobs_;  // null where this rank is not in it
  std::int64_t certain_ = 0, possible_ = 0;
};

void soak(Program& program) {
  if (program.size < 2) return program.skip("it takes two ranks");
  const auto threads = program.option("threads", 2), cases = program.option("cases", 100);
  std::deque<Worker> workers;
  for (std::int64_t thread = 0; thread < threads; ++thread) workers.emplace_back(program, thread);
  const std::int64_t before = all_direct_calls();
  std::vector<std::thread> running;
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&program, &worker = workers[static_cast<std::size_t>(thread)], thread, threads, cases] {
      program.device()->make_current();
      for (std::int64_t number = thread; number < cases; number += threads) worker.run(number);
      worker.run_last();
      CROSSLANE_STEP("thread {} is done", thread);
    });
  }
  CROSSLANE_STEP("threads are awaited");
  for (auto& thread : running) thread.join();
  const std::int64_t direct = all_direct_calls() - before;
  std::int64_t certain = 0, possible = 0;
  for (const Worker& worker : workers) {
    certain += worker.certain();
    possible += worker.possible();
  }
  CROSSLANE_CHECK(direct >= certain && direct <= certain + possible,
                  "{} calls went direct; {} have to, and {} others may", direct, certain, possible);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "direct_soak", MPI_THREAD_MULTIPLE);
  soak(program);
  return program.finish();
}
