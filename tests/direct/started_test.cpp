// Direct collectives that are only started, nonblocking or persistent: they end without their callers, in any company.
//   --what mixes     blocking, nonblocking and persistent ones and messages, on several communicators, completed by every procedure
//   --what threads   the same, each thread on communicators of its own
//   --what memory    starting against freeing memory and receiving: a kernel must not wait for a peer's host
//   --what barriers  starting against barriers, which nobody leaves before all have come
//   --what ahead     one rank starts many more calls than others have come to
//   --what ahead_on_host   one rank makes many more blocking calls in host memory than others have come to
//   --what freed     requests and communicators that are freed while calls are under way, up to MPI_Finalize
//   --what captured  a thread captures a graph meanwhile, which forbids others' threads much
//   --what persistent  from the second start on persistent ones go direct, in whatever order ranks start them
//   --what wrong     errors are told at the call, and later calls are right
//   --what missing   the watchdog names who does not come
//   --direct 0: nothing may go direct, and all must be right. --driven 1: the settings prefer an all-reduce that the host drives.
//   --forms all, or some of blocking,nonblocking,persistent
#include "collectives/completion.h"
#include "direct/job.h"
#include "direct/listener.h"
#include "direct/parts.h"
#include "support/linger.h"
#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;

std::int64_t all_direct_calls() {
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < kind_names.size(); ++kind) sum += direct_calls(static_cast<Kind>(kind));
  return sum;
}

void linger(Random& local) { tests::linger(local.chance(30) ? local.below(200) : 0); }

Case random_case(Random& random, const Job& job) {
  Case what;
  what.kind = static_cast<Kind>(random.below(kind_names.size()));
  what.element = &random.pick(elements());
  std::tie(what.op_name, what.op) = random.pick(what.element->ops);
  const std::size_t bytes =
      random.pick(std::array<std::size_t, 8>{1, 64, 1000, 4 * kib, 16 * kib, 66000, 128 * kib, 300 * kib});
  what.units = std::max<std::size_t>(bytes / what.element->base.extent / (in_blocks(what.kind) ? 2 : 1), 1);
  what.in_place = what.kind != Kind::broadcast && random.chance(30);
  what.root = static_cast<int>(random.below(static_cast<std::uint64_t>(job.size())));
  what.seed = random.next();
  return what;
}

// A collective under way, or a persistent one between its rounds.
struct Running {
  const Job* job;
  Job::Run run;
  MPI_Request request = MPI_REQUEST_NULL;
  int rounds = 0;  // that are still to come, of a persistent one
};

// A message to the next rank and one from the one before.
struct Messages {
  std::unique_ptr<Memory> out, in;
  std::vector<std::byte> expected;
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

class Mix {
 public:
  Mix(Program& program, std::vector<Job>& jobs, Random& local, Manners manners)
      : program_(program), jobs_(jobs), local_(local), manners_(std::move(manners)) {
    const auto forms = program.text_option("forms", "all");
    for (const auto& [name, form] : {std::pair<const char*, Form>{"blocking", Form::blocking},
                                     {"nonblocking", Form::nonblocking},
                                     {"persistent", Form::persistent}})
      if (forms == "all" || forms.find(name) != std::string::npos) forms_.push_back(form);
  }

  // All ranks with the same seed; a case is of one of them that has all in it.
  void run(std::int64_t cases, std::uint64_t seed) {
    for (std::int64_t number = 0; number < cases; ++number) {
      Random random(mix(seed, number));
      const Job& job = random.pick(jobs_);
      Case what = random_case(random, job);
      Form form = random.pick(forms_);
      const bool can =
          form != Form::persistent || EntryPoint::find("Allreduce", Form::persistent, false).address != nullptr;
      if (!can) form = Form::nonblocking;
      const auto drawn = random.between(1, 4);
      const auto rounds = plain_mpi().persistent_collectives_read_too_early ? 1 : drawn;
      if (random.chance(15)) exchange(number);
      linger(local_);
      CROSSLANE_STEP("{}: {}, form {}, seed {}", job.name(), what.text(), static_cast<int>(form), what.seed);
      start(job, what, form, rounds);
      if (random.chance(8)) {
        complete_all();
      } else if (local_.chance(20)) {
        complete_some();
      }
      if (running_.size() > most) complete_all();
    }
    complete_all();
  }
  // Of this rank: calls that must have gone direct.
  [[nodiscard]] std::int64_t calls() const { return calls_; }

 private:
  static constexpr std::size_t most = 10;

  void start(const Job& job, Case what, Form form, int rounds) {
    // MPI itself may combine in another order, and has its own trouble with some.
    if (program_.memory() != "device" || program_.option("direct", 1) == 0 || form == Form::persistent ||
        job.in_turns())
      leave_to_mpi(what);
    Running running{&job, job.make(what, manners_, local_), MPI_REQUEST_NULL, form == Form::persistent ? rounds : 0};
    job.load(running.run, local_);
    job.call(running.run, form, &running.request);
    if (form == Form::blocking) {
      calls_ += job.goes_direct(what) ? 1 : 0;
      job.check(running.run);
      return;
    }
    if (form == Form::persistent) {
      // All rounds but the last one at once, so that order is not an affair of others.
      for (; running.rounds > 1; --running.rounds) {
        begin(running);
        complete_in_random_order(one(running), local_, true);
        running.request = one_.front();
        job.check(running.run);
        job.load(running.run, local_);
      }
      begin(running);
      complete_in_random_order(one(running), local_, true);
      running.request = one_.front();
      job.check(running.run);
      CROSSLANE_MPI(MPI_Request_free(&running.request));
      return;
    }
    calls_ += job.goes_direct(what) ? 1 : 0;
    running_.push_back(std::move(running));
  }

  std::vector<MPI_Request>& one(const Running& running) {
    one_.assign(1, running.request);
    return one_;
  }
  void begin(Running& running) {
    if (local_.chance(30)) {
      CROSSLANE_MPI(MPI_Startall(1, &running.request));
    } else {
      CROSSLANE_MPI(MPI_Start(&running.request));
    }
    ++persistent_;
    linger(local_);
  }

  // Messages between neighbours of the world, whatever else is under way.
  void exchange(std::int64_t number) {
    Random random(mix(program_.seed, number, 31));
    const std::size_t bytes = random.pick(std::array<std::size_t, 4>{8, 255, 5000, 200000});
    const int next = (program_.rank + 1) % program_.size, before = (program_.rank + program_.size - 1) % program_.size;
    const int tag = static_cast<int>(number % 1000);
    Messages messages{std::make_unique<Memory>(manners_.kind(local_), bytes),
                      std::make_unique<Memory>(manners_.kind(local_), bytes),
                      pattern(mix(program_.seed, number, before), bytes),
                      {}};
    messages.out->write(pattern(mix(program_.seed, number, program_.rank), bytes));
    const int count = static_cast<int>(bytes);
    CROSSLANE_MPI(MPI_Irecv(messages.in->data(), count, MPI_BYTE, before, tag, MPI_COMM_WORLD, &messages.requests[0]));
    CROSSLANE_MPI(MPI_Isend(messages.out->data(), count, MPI_BYTE, next, tag, MPI_COMM_WORLD, &messages.requests[1]));
    messages_.push_back(std::move(messages));
  }

  // Of this rank's alone: its oldest ones, which all others start without it.
  void complete_some() {
    if (running_.empty()) return;
    std::vector<MPI_Request> requests;
    const auto some = std::min<std::size_t>(running_.size(), 1 + local_.below(3));
    for (std::size_t i = 0; i < some; ++i) requests.push_back(running_[i].request);
    // Others may come to these only after what this rank does next: so it only tests.
    int flag = 0;
    CROSSLANE_MPI(MPI_Testall(static_cast<int>(some), requests.data(), &flag, MPI_STATUSES_IGNORE));
    for (std::size_t i = 0; i < some; ++i) running_[i].request = requests[i];
    if (flag == 0) return;
    for (std::size_t i = 0; i < some; ++i) {
      running_.front().job->check(running_.front().run);
      running_.pop_front();
    }
  }

  // All ranks at the same case: everything under way, in any order.
  void complete_all() {
    std::vector<std::pair<std::size_t, bool>> order;  // place, and whether it is a collective
    for (std::size_t i = 0; i < running_.size(); ++i) order.emplace_back(i, true);
    for (std::size_t i = 0; i < 2 * messages_.size(); ++i) order.emplace_back(i, false);
    local_.shuffle(order);
    std::vector<MPI_Request> requests;
    for (const auto& [place, collective] : order)
      requests.push_back(collective ? running_[place].request : messages_[place / 2].requests.at(place % 2));
    complete_in_random_order(requests, local_, false);
    for (Running& running : running_) running.job->check(running.run);
    running_.clear();
    for (const Messages& messages : messages_)
      CROSSLANE_CHECK(messages.in->read() == messages.expected, "a message of {} bytes", messages.expected.size());
    messages_.clear();
  }

  Program& program_;
  std::vector<Job>& jobs_;
  Random& local_;
  Manners manners_;
  std::vector<Form> forms_;
  std::deque<Running> running_;
  std::vector<Messages> messages_;
  std::vector<MPI_Request> one_;
  std::int64_t calls_ = 0, persistent_ = 0;
};

std::vector<Job> make_jobs(Program& program, int copies) {
  std::vector<Job> jobs;
  for (int copy = 0; copy < copies; ++copy) {
    MPI_Comm made = MPI_COMM_NULL;
    if (copy == 1) {
      MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made);
    } else {
      MPI_Comm_dup(MPI_COMM_WORLD, &made);
    }
    jobs.emplace_back(program, made, fmt::format("communicator {}", copy));
    jobs.back().warm_up();
  }
  return jobs;
}

void free_jobs(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    MPI_Comm communicator = job.communicator();
    MPI_Comm_free(&communicator);
  }
}

Manners manners_of(const Program& program) {
  return {.kind = [&program](Random& random) { return program.kind(random); },
          .derived = program.memory() == "device" ? 0U : 30U,
          .most_derived = 64 * kib};
}

void mixes(Program& program) {
  auto jobs = make_jobs(program, 3);
  const std::int64_t before = all_direct_calls();
  Mix mix_of_all(program, jobs, program.local(), manners_of(program));
  mix_of_all.run(program.option("cases", 150), program.seed);
  const std::int64_t direct = all_direct_calls() - before;
  if (program.option("direct", 1) == 0) {
    CROSSLANE_CHECK_EQUAL(direct, std::int64_t{0});
  } else if (program.memory() == "device") {
    CROSSLANE_CHECK(direct >= mix_of_all.calls(), "{} calls went direct of {}", direct, mix_of_all.calls());
  }
  free_jobs(jobs);
}

void threads(Program& program) {
  constexpr int most = 3;
  std::vector<std::vector<Job>> jobs;
  for (int thread = 0; thread < most; ++thread) jobs.push_back(make_jobs(program, 2));
  std::vector<std::thread> running;
  for (int thread = 0; thread < most; ++thread) {
    running.emplace_back([&program, &jobs, thread] {
      program.device()->make_current();
      Random local(mix(program.seed, thread, program.rank));
      Manners manners = manners_of(program);
      Mix one(program, jobs[static_cast<std::size_t>(thread)], local, manners);
      one.run(program.option("cases", 40), mix(program.seed, thread, 5));
      CROSSLANE_STEP("thread {} is done", thread);
    });
  }
  for (auto& thread : running) thread.join();
  for (const auto& each : jobs) free_jobs(each);
}

// One nonblocking all-reduce on GPU memory.
class Sum {
 public:
  Sum(const Job& job, std::size_t units, std::uint64_t seed, Random& local)
      : job_(job), run_(job.make(sum_of_ints(units, seed), on_the_gpu(), local)), seen_(direct_calls(Kind::allreduce)) {
    job_.load(run_, local);
  }
  void start(Form form = Form::nonblocking) { job_.call(run_, form, &request_); }
  void wait() { CROSSLANE_MPI(MPI_Wait(&request_, MPI_STATUS_IGNORE)); }
  void check() { job_.check(run_); }
  void check_direct() const {
    CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - seen_, std::int64_t{job_.goes_direct(run_.what) ? 1 : 0});
  }
  [[nodiscard]] MPI_Request& request() { return request_; }

 private:
  const Job& job_;
  Job::Run run_;
  std::int64_t seen_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

constexpr std::array<std::size_t, 4> some_sizes{2, 1000, 20000, 200000};

// Rank 0: Iallreduce; cuMemFree; Send. The others: Recv; Iallreduce. Freeing waits for all that the GPU does.
void memory(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  for (int round = 0; round < 5; ++round) {
    for (const std::size_t units : some_sizes) {
      CROSSLANE_STEP("round {}: {} ints, and memory is freed", round, units);
      CUdeviceptr other = 0;
      CROSSLANE_CUDA(cuMemAlloc(&other, 1 << 20));
      Sum sum(world, units, mix(program.seed, round, units), program.local());
      int go = round;
      if (program.rank == 0) {
        sum.start();
        CROSSLANE_CUDA(cuMemFree(other));
        for (int rank = 1; rank < program.size; ++rank)
          CROSSLANE_MPI(MPI_Send(&go, 1, MPI_INT, rank, 3, MPI_COMM_WORLD));
      } else {
        CROSSLANE_MPI(MPI_Recv(&go, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        sum.start();
        CROSSLANE_CUDA(cuMemFree(other));
      }
      sum.wait();
      sum.check();
      sum.check_direct();
    }
  }
}

// Each kind of collective is under way while even ranks sit in a barrier; odd ones complete it before they come there.
void barriers(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  for (std::size_t kind = 0; kind < kind_names.size(); ++kind) {
    for (const std::size_t units : some_sizes) {
      Case what = sum_of_ints(units, mix(program.seed, kind, units));
      what.kind = static_cast<Kind>(kind);
      CROSSLANE_STEP("a barrier and {}", what.text());
      const std::int64_t before = direct_calls(what.kind);
      Job::Run run = world.make(what, on_the_gpu(), program.local());
      world.load(run, program.local());
      MPI_Request request = MPI_REQUEST_NULL;
      world.call(run, Form::nonblocking, &request);
      if (program.rank % 2 == 0) CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      if (program.rank % 2 != 0) CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      world.check(run);
      CROSSLANE_CHECK_EQUAL(direct_calls(what.kind) - before, std::int64_t{world.goes_direct(what) ? 1 : 0});
    }
  }
}

// Rank 0 starts more calls than a verdict's place can wait for before it lets the others begin.
void ahead(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr std::size_t many = 150;
  for (int round = 0; round < 3; ++round) {
    CROSSLANE_STEP("round {}", round);
    const std::int64_t before = direct_calls(Kind::allreduce);
    int go = round;
    if (program.rank != 0) CROSSLANE_MPI(MPI_Recv(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    std::deque<Sum> sums;
    std::vector<MPI_Request> requests;
    for (std::size_t i = 0; i < many; ++i) {
      sums.emplace_back(world, 100, mix(program.seed, round, i), program.local());
      sums.back().start();
      requests.push_back(sums.back().request());
    }
    for (int rank = 1; program.rank == 0 && rank < program.size; ++rank)
      CROSSLANE_MPI(MPI_Send(&go, 1, MPI_INT, rank, 4, MPI_COMM_WORLD));
    complete_in_random_order(requests, program.local(), false);
    for (Sum& sum : sums) sum.check();
    const std::int64_t direct = direct_calls(Kind::allreduce) - before;
    const bool some = direct >= 30 && direct < static_cast<std::int64_t>(many);
    CROSSLANE_CHECK(some || world.in_turns(), "{} of {} calls went direct", direct, many);
    polite_barrier();
    // All are together again: a blocking call ends what was, and what follows is direct.
    world.run(sum_of_ints(100, mix(program.seed, round, 500)), on_the_gpu(), program.local());
    Sum after(world, 1000, mix(program.seed, round, 501), program.local());
    after.start();
    after.wait();
    after.check();
    after.check_direct();
  }
}

// Rank 0 makes more blocking calls in host memory than a verdict's place can wait for before it lets the others begin, which MPI alone would let it.
void ahead_on_host(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr int many = 150;
  for (int round = 0; round < 3; ++round) {
    CROSSLANE_STEP("round {}", round);
    int go = round;
    if (program.rank != 0) CROSSLANE_MPI(MPI_Recv(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < many; ++i) {
      int value = program.rank == 0 ? round * many + i : -1;
      CROSSLANE_MPI(MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
      CROSSLANE_CHECK_EQUAL(value, round * many + i);
    }
    for (int rank = 1; program.rank == 0 && rank < program.size; ++rank)
      CROSSLANE_MPI(MPI_Send(&go, 1, MPI_INT, rank, 4, MPI_COMM_WORLD));
    polite_barrier();
    // All are together again: the first call may be MPI's, those behind it go direct.
    world.run(sum_of_ints(100, mix(program.seed, round, 500)), on_the_gpu(), program.local());
    const std::int64_t before = direct_calls(Kind::allreduce);
    world.run(sum_of_ints(100, mix(program.seed, round, 501)), on_the_gpu(), program.local());
    CROSSLANE_CHECK(direct_calls(Kind::allreduce) > before || world.in_turns(), "a call did not go direct");
  }
}

// Until results are there: a freed request tells nothing.
void await_result(const Memory& memory, int expected) {
  while (memory.values<int>().front() != expected) {
    int flag = 0;
    MPI_Request none = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Test(&none, &flag, MPI_STATUS_IGNORE));
    sched_yield();
  }
}

// The last one's memory lives until the end.
void freed(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const int expected = program.size * (program.size - 1) / 2;
  for (int round = 0; round < 4; ++round) {
    CROSSLANE_STEP("round {}: a request is freed", round);
    Memory data(MemoryKind::device, 4000);
    data.fill(std::vector<int>(1000, program.rank));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Iallreduce(MPI_IN_PLACE, data.data(), 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Request_free(&request));
    CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "a freed request is not null");
    await_result(data, expected);
    polite_barrier();

#ifdef OPEN_MPI
    // What goes through the host is Open MPI's own nonblocking collective, which goes on with a communicator that is gone.
    if (world.in_turns()) continue;
#endif
    CROSSLANE_STEP("round {}: a communicator is freed", round);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    const Job job(program, made, "a communicator that is freed");
    job.warm_up();
    std::deque<Sum> sums;
    for (std::size_t i = 0; i < 5; ++i) {
      sums.emplace_back(job, 3000, mix(program.seed, round, i), program.local());
      sums.back().start();
    }
    CROSSLANE_MPI(MPI_Comm_free(&made));
    for (Sum& sum : sums) {
      sum.wait();
      sum.check();
    }
  }
  CROSSLANE_STEP("a request is freed before MPI_Finalize");
  CUdeviceptr last = 0;
  CROSSLANE_CUDA(cuMemAlloc(&last, 4000));
  CROSSLANE_CUDA(cuMemsetD8(last, 0, 4000));
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(
      MPI_Iallreduce(MPI_IN_PLACE, reinterpret_cast<void*>(last), 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  CROSSLANE_MPI(MPI_Request_free(&request));
}

// Rank 0's call ends while it captures a graph; the others tell it when they are through.
void captured(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  CUstream stream = nullptr;
  CROSSLANE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t units : some_sizes) {
      CROSSLANE_STEP("round {}: {} ints, and a graph is captured", round, units);
      Sum sum(world, units, mix(program.seed, round, units), program.local());
      int go = round;
      if (program.rank == 0) {
        sum.start();
        CROSSLANE_CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int rank = 1; rank < program.size; ++rank) {
          CROSSLANE_MPI(MPI_Send(&go, 1, MPI_INT, rank, 5, MPI_COMM_WORLD));
          CROSSLANE_MPI(MPI_Recv(&go, 1, MPI_INT, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        CUgraph graph = nullptr;
        CROSSLANE_CUDA(cuStreamEndCapture(stream, &graph));
        CROSSLANE_CUDA(cuGraphDestroy(graph));
        sum.wait();
      } else {
        CROSSLANE_MPI(MPI_Recv(&go, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        sum.start();
        // Only the last of the others finds all there.
        if (program.rank == program.size - 1) sum.wait();
        CROSSLANE_MPI(MPI_Send(&go, 1, MPI_INT, 0, 6, MPI_COMM_WORLD));
        if (program.rank != program.size - 1) sum.wait();
      }
      sum.check();
      sum.check_direct();
    }
  }
  CROSSLANE_CUDA(cuStreamDestroy(stream));
}

// Several on one communicator, one of each kind; the first start of each may be the MPI's.
void persistent(Program& program) {
  if (EntryPoint::find("Allreduce", Form::persistent, false).address == nullptr)
    return program.skip("this MPI has no persistent collectives");
  const Job world(program, MPI_COMM_WORLD, "the world");
  if ((program.memory() != "device" || world.in_turns()) && plain_mpi().persistent_collectives_read_too_early)
    return program.skip("this MPI cannot start persistent collectives again, as those of host memory are");
  world.warm_up();
  for (int set = 0; set < 3; ++set) {
    std::deque<Running> all;
    std::int64_t expected = 0;
    for (std::size_t kind = 0; kind < kind_names.size(); ++kind) {
      Case what = sum_of_ints(some_sizes.at((kind + static_cast<std::size_t>(set)) % some_sizes.size()),
                              mix(program.seed, set, kind));
      what.kind = static_cast<Kind>(kind);
      what.whole = true;
      what.root = set % program.size;
      CROSSLANE_STEP("set {}: {} is made", set, what.text());
      all.push_back({&world, world.make(what, manners_of(program), program.local()), MPI_REQUEST_NULL, 0});
      world.load(all.back().run, program.local());
      world.call(all.back().run, Form::persistent, &all.back().request);
      expected += world.goes_direct(what) ? 1 : 0;
    }
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    constexpr int rounds = 5;
    for (int round = 0; round < rounds; ++round) {
      CROSSLANE_STEP("set {}: round {}", set, round);
      polite_barrier();
      const std::int64_t before = all_direct_calls();
      // The MPI's own starts are in one order, the direct ones in each rank's.
      if (round > 1) program.local().shuffle(order);
      std::vector<MPI_Request> requests;
      for (const std::size_t which : order) {
        Running& one = all[which];
        if (round > 0) world.load(one.run, program.local());
        requests.push_back(one.request);
      }
      for (std::size_t first = 0; first < requests.size();) {
        const std::size_t some = std::min(requests.size() - first, 1 + program.local().below(round > 1 ? 4 : 1));
        linger(program.local());
        if (some > 1 || program.local().chance(30)) {
          CROSSLANE_MPI(MPI_Startall(static_cast<int>(some), &requests[first]));
        } else {
          CROSSLANE_MPI(MPI_Start(&requests[first]));
        }
        first += some;
      }
      complete_in_random_order(requests, program.local(), true);
      for (std::size_t i = 0; i < order.size(); ++i) all[order[i]].request = requests[i];
      for (Running& one : all) world.check(one.run);
      if (round > 0 && program.memory() == "device") CROSSLANE_CHECK_EQUAL(all_direct_calls() - before, expected);
    }
    for (Running& one : all) {
      CROSSLANE_MPI(MPI_Request_free(&one.request));
      CROSSLANE_CHECK(one.request == MPI_REQUEST_NULL, "a freed request is not null");
    }
  }
}

// The rank that is wrong hears why, and the others that it is; nobody waits for it.
void one_is_wrong(Program& program, const Job& world, void* small, int wrong_rank) {
  if (world.in_turns()) return;  // what goes through the host waits in MPI
  constexpr int ints = 100000;
  Memory right(MemoryKind::device, ints * sizeof(int));
  const bool am_wrong = program.rank == wrong_rank;
  void* const mine = am_wrong ? small : right.data();
  const auto check = [&](const char* how, int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    CROSSLANE_CHECK(error_class == (am_wrong ? MPI_ERR_BUFFER : MPI_ERR_OTHER), "{}: error class {}", how, error_class);
  };
  CROSSLANE_STEP("rank {} is wrong in a blocking call", wrong_rank);
  check("blocking", MPI_Allreduce(MPI_IN_PLACE, mine, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CROSSLANE_STEP("rank {} is wrong in a call that it starts", wrong_rank);
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_Iallreduce(MPI_IN_PLACE, mine, ints, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  if (!am_wrong) CROSSLANE_CHECK_EQUAL(code, MPI_SUCCESS);
  if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  check("started", code);
}

// Buffers that are too small, on all ranks and on one.
void wrong(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int round = 0; round < 3; ++round) {
    CROSSLANE_STEP("round {}: a buffer that is too small", round);
    CUdeviceptr small = 0;
    CROSSLANE_CUDA(cuMemAlloc(&small, 64));
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, reinterpret_cast<void*>(small), 100000000, MPI_INT, MPI_SUM,
                                    MPI_COMM_WORLD, &request);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_BUFFER);
    one_is_wrong(program, world, reinterpret_cast<void*>(small), round % program.size);
    CROSSLANE_CUDA(cuMemFree(small));
    Sum sum(world, 1000, mix(program.seed, round), program.local());
    sum.start();
    sum.wait();
    sum.check();
    sum.check_direct();
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// Rank 1 comes only once rank 0's watchdog has named it.
void missing(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const Told told(program);
  // One that goes direct: what is staged waits inside the MPI.
  Sum sum(world, world.in_turns() ? direct_in_turns_from : 100, program.seed, program.local());
  if (program.rank == 0) {
    const Listener listener(told.path(), {"MPI_Wait on MPI_COMM_WORLD, call ", "missing ranks 1"});
    sum.start();
    sum.wait();
  } else {
    if (program.rank == 1) told.await();
    sum.start();
    sum.wait();
  }
  sum.check();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  return run_part(argc, argv, "direct_started",
                  {{"mixes", mixes},
                   {"threads", threads, MPI_THREAD_MULTIPLE},
                   {"memory", memory},
                   {"barriers", barriers},
                   {"ahead", ahead},
                   {"ahead_on_host", ahead_on_host},
                   {"freed", freed},
                   {"captured", captured},
                   {"persistent", persistent},
                   {"wrong", wrong},
                   {"missing", missing}});
}
