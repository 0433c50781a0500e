// Collectives among nodes (CROSSLANE_NODE_SIZE pretends them), beyond results, which direct_test.cpp checks: what a communicator takes
// and gives back, who cannot take part, who fails, who does not come, who passes something else.
//   --what communicators|threads|refused|mixed|promised|fails|missing|wrong
#include "direct/job.h"
#include "direct/listener.h"
#include "direct/parts.h"

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

std::int64_t by_hierarchy() {
  return direct_calls("allreduce", "hierarchy(gsb,btb)") + direct_calls("allreduce", "hierarchy(btb,gsb)");
}

// Runs the case `repeats` times, of which so many go among nodes by an algorithm of ours.
void run(const Job& job, const Case& what, int among, Random& local) {
  const std::int64_t before = by_hierarchy();
  job.run(what, on_the_gpu(), local);
  CROSSLANE_CHECK_EQUAL(by_hierarchy() - before, std::int64_t{among});
}

// Made, used and freed: places on the boards, tags and memory come back. Parts of nodes, in other orders, several at once.
void communicators(Program& program) {
  const auto rounds = program.option("rounds", 60);
  std::size_t free_before = 0, free_after = 0, total = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round == rounds / 2) CROSSLANE_CUDA(cuMemGetInfo(&free_before, &total));
    CROSSLANE_STEP("round {}", round);
    Random random(mix(program.seed, round));
    std::array<MPI_Comm, 2> made{MPI_COMM_NULL, MPI_COMM_NULL};
    for (MPI_Comm& each : made) {
      switch (random.below(3)) {
        case 0:
          MPI_Comm_dup(MPI_COMM_WORLD, &each);
          break;
        case 1:
          MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &each);
          break;
        default:  // of each node every other rank, where it has several
          MPI_Comm_split(MPI_COMM_WORLD, program.rank % 2, random.chance(50) ? program.rank : -program.rank, &each);
          break;
      }
    }
    for (const MPI_Comm each : made) {
      const Job job(program, each, fmt::format("a communicator of round {}", round));
      const bool among = job.size() > 1 && !job.on_one_node();
      run(job, sum_of_ints(1 + random.below(60000), random.next(), 2), among ? 2 : 0, program.local());
    }
    for (MPI_Comm& each : made) MPI_Comm_free(&each);
  }
  polite_barrier();
  CROSSLANE_CUDA(cuMemGetInfo(&free_after, &total));
  CROSSLANE_CHECK(free_after >= free_before, "{} bytes of GPU memory were free, {} rounds later {}", free_before,
                  rounds - rounds / 2, free_after);
}

// Threads, each with communicators of its own, which are all used first there: at once.
void threads(Program& program) {
  constexpr std::size_t most = 3;
  const auto rounds = static_cast<std::size_t>(program.option("rounds", 4));
  std::vector<MPI_Comm> made(most * rounds, MPI_COMM_NULL);
  for (std::size_t index = 0; index < made.size(); ++index)
    MPI_Comm_split(MPI_COMM_WORLD, 0, index % 2 == 0 ? program.rank : -program.rank, &made[index]);
  std::vector<Job> jobs;
  for (std::size_t index = 0; index < made.size(); ++index)
    jobs.emplace_back(program, made[index], fmt::format("thread {}, round {}", index % most, index / most));
  const std::int64_t before = by_hierarchy();
  constexpr int repeats = 3;
  std::vector<std::thread> running;
  for (std::size_t thread = 0; thread < most; ++thread) {
    running.emplace_back([&, thread] {
      program.device()->make_current();
      Random local(mix(program.seed, static_cast<std::int64_t>(thread), program.rank));
      for (std::size_t index = thread; index < jobs.size(); index += most) {
        Random random(mix(program.seed, static_cast<std::int64_t>(index), 9));
        const auto units = random.pick(std::array<std::size_t, 4>{1, 1000, 70000, 600000});
        jobs[index].run(sum_of_ints(units, random.next(), repeats), on_the_gpu(), local);
      }
      CROSSLANE_STEP("thread {} is done", thread);
    });
  }
  for (auto& thread : running) thread.join();
  CROSSLANE_CHECK_EQUAL(by_hierarchy() - before, static_cast<std::int64_t>(jobs.size()) * repeats);
  for (MPI_Comm& each : made) MPI_Comm_free(&each);
}

// Some rank cannot take part, or the settings say that all is staged.
void refused(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  for (const std::size_t units : {std::size_t{1}, std::size_t{5000}, std::size_t{300000}})
    run(world, sum_of_ints(units, mix(program.seed, units), 3), 0, program.local());
}

// Once a communicator is known to span nodes, ranks may pass whatever memory they have.
void mixed(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  run(world, sum_of_ints(100, program.seed, 1), 1, program.local());
  const Manners manners{.kind = [&program](Random& random) { return program.kind(random); }};
  const std::int64_t before = by_hierarchy();
  const auto cases = program.option("cases", 30);
  for (std::int64_t number = 0; number < cases; ++number) {
    Random random(mix(program.seed, number));
    world.run(sum_of_ints(1 + random.below(100000), random.next()), manners, program.local());
  }
  CROSSLANE_CHECK_EQUAL(by_hierarchy() - before, cases);
}

// CROSSLANE_MIXED=0: by size, and host memory is the MPI's.
void promised(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  run(world, sum_of_ints(100, program.seed, 2), 0, program.local());
  run(world, sum_of_ints(200000, program.seed, 2), 2, program.local());
  const Manners host{.kind = [](Random&) { return MemoryKind::host; }};
  const std::int64_t before = by_hierarchy();
  world.run(sum_of_ints(200000, program.seed, 2), host, program.local());
  CROSSLANE_CHECK_EQUAL(by_hierarchy(), before);
}

// Must fail with a message that has all of these.
void fails_with(const std::function<int(void*)>& call, const std::vector<std::string>& words,
                MPI_Comm comm = MPI_COMM_WORLD, std::size_t ints = 1000) {
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  Memory data(MemoryKind::device, ints * sizeof(int));
  const int code = call(data.data());
  CROSSLANE_CHECK(code != MPI_SUCCESS, "no error");
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  for (const std::string& word : words)
    CROSSLANE_CHECK(std::string(text.data()).find(word) != std::string::npos, "\"{}\" does not say \"{}\"", text.data(),
                    word);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

// The last rank fails in a call: its GPU (the settings' fault), or before it has come. Ranks of all nodes are told, at once or at the next call,
// and nobody hangs; other communicators work, also after this one was freed.
void fails(Program& program) {
  const bool last = program.rank == program.size - 1;
  for (const bool early : {false, true}) {
    MPI_Comm broken = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &broken);
    const auto call = [broken](int root, int count) {
      return [broken, root, count](void* data) {
        return root < 0 ? MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT, MPI_SUM, broken)
                        : MPI_Bcast(data, count, MPI_INT, root, broken);
      };
    };
    run(Job(program, broken, "one that fails"), sum_of_ints(1000, program.seed), 1, program.local());
    CROSSLANE_STEP("a call in which the last rank fails {}", early ? "early" : "late");
    constexpr int many = 700000;
    const std::string reason = early ? "recvbuf" : "cuLaunchKernel";
    fails_with(call(-1, early ? many : 1000), {last ? reason : "failed"}, broken, early && !last ? many : 1000);
    for (const int root : {-1, 0, 1}) {
      CROSSLANE_STEP("a call after it, root {}", root);
      fails_with(call(root, 1000), {"failed"}, broken);
    }
    MPI_Comm_free(&broken);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    run(Job(program, made, "another"), sum_of_ints(1000, program.seed, 3), 3, program.local());
    MPI_Comm_free(&made);
  }
}

// The last rank comes only once the watchdog of the other node's leader has told whom it waits for.
void missing(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  run(world, sum_of_ints(1000, program.seed), 1, program.local());
  const Told told(program);
  if (program.rank == program.size - 1) told.await();
  const Case what = sum_of_ints(1000, program.seed);
  if (program.rank == 1) {
    const Listener listener(told.path(), {"MPI_Allreduce on MPI_COMM_WORLD", "ranks of other nodes"});
    run(world, what, 1, program.local());
  } else {
    run(world, what, 1, program.local());
  }
}

// CROSSLANE_CHECK=1: who calls something else is named, on whatever node it is.
void wrong(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  {
    CROSSLANE_STEP("GPU memory on the root alone");
    const auto n = static_cast<std::size_t>(program.size);
    Memory all(MemoryKind::device, n * sizeof(int));
    std::vector<int> numbers(n);
    for (std::size_t rank = 0; rank < n; ++rank) numbers[rank] = static_cast<int>(7 + rank);
    all.fill(numbers);
    int mine = 0;
    CROSSLANE_MPI(MPI_Scatter(all.data(), 1, MPI_INT, &mine, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CROSSLANE_CHECK_EQUAL(mine, 7 + program.rank);
  }
  run(world, sum_of_ints(1000, program.seed), 1, program.local());
  const int odd_one = static_cast<int>(program.shared().below(static_cast<std::uint64_t>(program.size)));
  const bool odd = program.rank == odd_one;
  const std::string who = fmt::format("on rank {}", odd_one);
  const auto reduce = [](void* data, int count, MPI_Op op) {
    return MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT, op, MPI_COMM_WORLD);
  };
  fails_with([&](void* data) { return reduce(data, odd ? 100 : 101, MPI_SUM); },
             {"bytes is", "\"400\"", "\"404\"", who});
  fails_with([&](void* data) { return reduce(data, 100, odd ? MPI_MAX : MPI_SUM); }, {"op is", "\"max\"", who});
  fails_with([&](void* data) { return MPI_Bcast(data, 100, MPI_INT, odd ? 1 : 0, MPI_COMM_WORLD); },
             {"root is", "\"1\"", "\"0\"", who});
  fails_with(
      [&](void* data) {
        return odd ? MPI_Gather(data, 1, MPI_INT, static_cast<int*>(data) + 10, 1, MPI_INT, 0, MPI_COMM_WORLD)
                   : reduce(data, 100, MPI_SUM);
      },
      {"collective is", "\"gather\"", "\"allreduce\"", who});
  run(world, sum_of_ints(1000, program.seed, 2), 2, program.local());
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  return run_part(argc, argv, "direct_nodes",
                  {{"communicators", communicators},
                   {"threads", threads, MPI_THREAD_MULTIPLE},
                   {"refused", refused},
                   {"mixed", mixed},
                   {"promised", promised},
                   {.name = "fails", .run = fails, .before = only_last_rank_fails},
                   {"missing", missing},
                   {"wrong", wrong}});
}
