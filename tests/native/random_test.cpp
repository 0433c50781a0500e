// Enqueued collectives: random ones of every kind x element and operation x size x in place x root, on communicators of all shapes,
// many in flight on several streams, with MPI's own calls in between, against what must come out.
//   --any_order 1    what algorithms take that combine in another order
//   --most <bytes>  the largest block      --algorithm <name>  by which a plain call of each of --kinds must go
//   --kinds <collective>,<collective>  those alone
#include "native/enqueued.h"
#include "support/plain_mpi.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;

// Device memory of this rank's GPU.
Manners on_the_gpu() {
  return {.kind = [](Random&) { return MemoryKind::device; }};
}

// A communicator of this rank, with two streams that take turns.
struct Lane {
  Job job;
  Stream first, second{CU_STREAM_DEFAULT};
  bool turn = false;

  const Stream& next() {
    const Stream& now = turn ? first : second;
    now.follow(turn ? second : first);
    turn = !turn;
    return now;
  }
  void finish() const {
    first.finish();
    second.finish();
  }
};

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        most_(static_cast<std::size_t>(program.option("most", 400000))),
        any_order_(program.option("any_order", 0) != 0) {
    const std::string wanted = "," + program.text_option("kinds", "") + ",";
    for (std::size_t kind = 0; kind < kind_names.size(); ++kind)
      if (wanted == ",," || wanted.find(fmt::format(",{},", kind_names.at(kind))) != wanted.npos)
        kinds_.push_back(static_cast<Kind>(kind));
    add(MPI_COMM_WORLD, "the world", 0);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    add(made, "a duplicate", 1);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made);
    add(made, "all ranks in reversed order", 100 * kib);
    MPI_Comm_split(MPI_COMM_WORLD, program.rank / 2, 0, &made);
    add(made, "pairs", most_);
    MPI_Comm_split(MPI_COMM_WORLD, program.rank, 0, &made);
    add(made, "each rank alone", 0);
    // Blocking collectives never go direct on this one: nobody saw it made.
    add(plain_mpi_duplicate(MPI_COMM_WORLD), "a duplicate made unseen", 64 * kib);
  }

  void run() {
    const auto batches = program_.option("cases", 100) / batch;
    for (std::int64_t number = 0; number < batches; ++number) run_batch(number);
    for (Lane& lane : lanes_) {
      CROSSLANE_CHECK_EQUAL(missing(lane.job.communicator()), -1);
      lane.finish();
    }
    const std::string algorithm = program_.text_option("algorithm", "");
    for (const Kind kind : kinds_)
      if (!algorithm.empty()) run_by(kind, algorithm);
    polite_barrier();  // every rank's streams are past all calls
    for (Lane& lane : lanes_) {
      MPI_Comm made = lane.job.communicator();
      if (made != MPI_COMM_WORLD) MPI_Comm_free(&made);
    }
  }

 private:
  static constexpr std::int64_t batch = 8;

  void add(MPI_Comm communicator, const char* name, std::size_t largest) {
    CROSSLANE_STEP("preparing {}", name);
    lanes_.push_back(
        {.job = Job(program_, communicator, name), .first = Stream(), .second = Stream(CU_STREAM_DEFAULT)});
    prepare(communicator, largest);
  }

  Case make(Random& random, const Job& job) const {
    static const std::vector<std::size_t> steps{0,        1,        17,       100,   1000,      4 * kib,
                                                16 * kib, 32 * kib, 64 * kib, 66000, 300 * kib, 2500 * kib};
    Case what;
    what.kind = random.pick(kinds_);
    what.element = &random.pick(elements());
    if (kinds_.size() < kind_names.size() && random.chance(50)) what.element = plain_element();
    std::tie(what.op_name, what.op) = random.pick(what.element->ops);
    // Contiguous is what may be enqueued.
    if (!combining(what.kind) && has_gaps(*what.element)) what.element = &elements().front();
    const std::size_t bytes = std::min(random.pick(steps), most_);
    what.units = (bytes + what.element->base.extent - 1) / what.element->base.extent;
    if (what.units > 1) what.units += random.below(3) - 1;
    const std::size_t blocks = in_blocks(what.kind) ? static_cast<std::size_t>(job.size()) : 1;
    while (what.bytes() * blocks > 2 * most_) what.units /= 2;
    what.in_place = random.chance(40) && what.kind != Kind::broadcast;
    what.whole = any_order_ && combining(what.kind);
    if (what.whole && !what.element->exact && what.op == MPI_PROD)
      std::tie(what.op_name, what.op) = what.element->ops.front();
    what.root = static_cast<int>(random.below(static_cast<std::uint64_t>(job.size())));
    what.seed = random.next();
    return what;
  }

  // Several calls in flight, on one communicator or on all, then all are compared.
  void run_batch(std::int64_t number) {
    Random random(mix(program_.seed, number));  // the same on all ranks
    Random& local = program_.local();
    const std::size_t fixed = random.below(2 * lanes_.size());
    std::vector<std::pair<Lane*, Job::Run>> runs;
    for (std::int64_t each = 0; each < batch; ++each) {
      const std::size_t which = fixed < lanes_.size() ? fixed : random.below(lanes_.size());
      Lane& lane = lanes_[which];
      Random own(mix(program_.seed, number, each, 3));
      const Case what = make(own, lane.job);
      CROSSLANE_STEP("{}: {}, seed {}", lane.job.name(), what.text(), what.seed);
      runs.emplace_back(&lane, lane.job.make(what, on_the_gpu(), local));
      Job::Run& run = runs.back().second;
      lane.job.load(run, local);
      const std::int64_t before = direct_calls(what.kind);
      CROSSLANE_MPI(enqueue(lane.job, run, lane.next()));
      const bool direct = lane.job.size() > 1 && what.units > 0;
      CROSSLANE_CHECK_EQUAL(direct_calls(what.kind) - before, direct ? 1 : 0);
      between(random);
    }
    for (auto& [lane, run] : runs) {
      CROSSLANE_STEP("{}: {}, seed {}: waiting", lane->job.name(), run.what.text(), run.what.seed);
      lane->finish();
      lane->job.check(run);
    }
  }

  // Whatever the dice said: a call that it takes goes by this algorithm.
  void run_by(Kind kind, const std::string& algorithm) {
    Lane& lane = lanes_.front();
    Case what;
    what.kind = kind;
    what.element = plain_element();
    std::tie(what.op_name, what.op) = what.element->ops.front();
    what.units = 30000;
    what.seed = mix(program_.seed, static_cast<std::uint64_t>(kind));
    CROSSLANE_STEP("{}: {}, seed {}, by {}", lane.job.name(), what.text(), what.seed, algorithm);
    Job::Run run = lane.job.make(what, on_the_gpu(), program_.local());
    lane.job.load(run, program_.local());
    const std::int64_t before = direct_calls(kind, algorithm.c_str());
    CROSSLANE_MPI(enqueue(lane.job, run, lane.next()));
    CROSSLANE_CHECK_EQUAL(direct_calls(kind, algorithm.c_str()) - before, 1);
    lane.finish();
    lane.job.check(run);
  }
  // What most algorithms know.
  static const Element* plain_element() {
    return &*std::ranges::find_if(elements(), [](const Element& each) { return each.base.name == "float"; });
  }

  // MPI's own, on the same communicators, while calls are under way.
  void between(Random& random) {
    Lane& lane = lanes_[random.below(lanes_.size())];
    const auto kind = random.below(6);
    const MPI_Comm comm = lane.job.communicator();
    const int size = lane.job.size();
    if (kind == 0) {
      CROSSLANE_STEP("{}: a blocking all-reduce in between", lane.job.name());
      Memory one(MemoryKind::device, sizeof(int));
      one.fill(std::vector<int>{lane.job.me()});
      CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, one.data(), 1, MPI_INT, MPI_SUM, comm));
      CROSSLANE_CHECK_EQUAL(one.values<int>().front(), size * (size - 1) / 2);
    } else if (kind == 1 && size > 1) {
      CROSSLANE_STEP("{}: a message in between", lane.job.name());
      Memory mine(MemoryKind::device, 4 * kib), theirs(MemoryKind::device, 4 * kib);
      const int to = (lane.job.me() + 1) % size, from = (lane.job.me() + size - 1) % size;
      mine.write(pattern(static_cast<std::uint64_t>(lane.job.me()), 4 * kib));
      CROSSLANE_MPI(MPI_Sendrecv(mine.data(), 4 * kib, MPI_BYTE, to, 5, theirs.data(), 4 * kib, MPI_BYTE, from, 5, comm,
                                 MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(theirs.read() == pattern(static_cast<std::uint64_t>(from), 4 * kib), "a message is wrong");
    } else if (kind == 2) {
      prepare(comm, random.below(1000));  // again: nothing changes
    }
  }

  Program& program_;
  std::size_t most_;
  bool any_order_;
  std::vector<Kind> kinds_;
  std::vector<Lane> lanes_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_random");
  if (can_prepare(program)) Test(program).run();
  return program.finish();
}
