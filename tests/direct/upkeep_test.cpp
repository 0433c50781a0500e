// What direct collectives keep between calls: mappings follow buffers that come and go, communicators give back what they took, who
// cannot take part says so. --what buffers|reused|communicators|crowded|strangers|lets_go|keeps|full|refused|recovers|one_recovers|door|elsewhere_sent|elsewhere_combined|elsewhere_seldom|events|missing|fails|falls|
// falls_started|threads
//   --driven 1  the settings prefer an all-reduce that the host drives
#include "direct/job.h"
#include "direct/listener.h"
#include "direct/parts.h"
#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

// Where the ranks' kernels take turns on a GPU, nothing waits on it for another rank.
bool kernels_may_wait(Program& program) {
  const bool may = !take_turns(MPI_COMM_WORLD);
  if (!may) program.skip("ranks take turns on a GPU that they share: this is of algorithms that need MPS there");
  return may;
}

// New buffers each round, large enough to be mapped by the others: results follow, and what was freed does not pile up.
void buffers(Program& program) {
  if (!kernels_may_wait(program)) return;
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr std::size_t bytes = std::size_t{320} << 10;
  const auto rounds = program.option("rounds", 200);
  std::size_t free_before = 0, free_after = 0, total = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    // The first rounds make what is made once.
    if (round == 20) CROSSLANE_CUDA(cuMemGetInfo(&free_before, &total));
    const std::int64_t mapped = direct_calls(Kind::allreduce, "two_shot");
    world.run(sum_of_ints(bytes / sizeof(int), mix(program.seed, round), 3), on_the_gpu(), program.local());
    // The third call finds the buffers mapped; the first, of which they are copied, perhaps the copies of an earlier round.
    const std::int64_t calls = direct_calls(Kind::allreduce, "two_shot") - mapped;
    CROSSLANE_CHECK(calls == 1 || calls == 2, "round {}: {} of 3 calls on mapped buffers", round, calls);
  }
  polite_barrier();
  CROSSLANE_CUDA(cuMemGetInfo(&free_after, &total));
  // Some of the last rounds may still be mapped by others.
  constexpr std::size_t few = 96 * bytes;
  CROSSLANE_CHECK(free_after + few >= free_before, "{} bytes of GPU memory were free, {} rounds later {}", free_before,
                  rounds - 20, free_after);
}

// The window lies where a buffer lay that others read in place and still have open: drivers open nothing there until that is closed.
void reused(Program& program) {
  constexpr std::size_t bytes = std::size_t{64} << 20;  // as large as a segment of the window
  {
    Memory sent(MemoryKind::device, bytes), received(MemoryKind::device, bytes);
    sent.write(pattern(mix(program.seed, program.rank), bytes));
    const int after = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
    for (int round = 0; round < 2; ++round) {
      CROSSLANE_MPI(MPI_Sendrecv(sent.data(), bytes, MPI_BYTE, after, 0, received.data(), bytes, MPI_BYTE, before, 0,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    CROSSLANE_CHECK(received.read() == pattern(mix(program.seed, before), bytes), "what rank {} sent", before);
  }
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const std::int64_t before = direct_calls(Kind::allreduce);
  world.run(sum_of_ints(20000, program.seed), on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - before, std::int64_t{world.in_turns() ? 0 : 1});
}

// More than the board has places, and than the window has room for at once.
void communicators(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const auto rounds = program.option("rounds", 300);
  for (std::int64_t round = 0; round < rounds; ++round) {
    MPI_Comm made = MPI_COMM_NULL;
    if (round % 2 == 0)
      MPI_Comm_dup(MPI_COMM_WORLD, &made);
    else
      MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made);
    {
      const Job job(program, made, fmt::format("communicator {}", round));
      job.warm_up();
      const std::int64_t before = direct_calls(Kind::allgather);
      // The last call ends in reads from the others' windows: freed at once, these must stay until all are through.
      Case what = sum_of_ints(20000, mix(program.seed, round));
      what.kind = Kind::allgather;
      job.run(what, on_the_gpu(), program.local());
      CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allgather) - before, std::int64_t{job.in_turns() ? 0 : 1});
    }
    MPI_Comm_free(&made);
  }
}

// In a line, without waiting, of a communicator that has no place.
void beside_neighbours(const Program& program) {
  MPI_Comm line = MPI_COMM_NULL;
  const int ends = 0;
  CROSSLANE_MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, &program.size, &ends, 0, &line));
  const int me = program.rank;
  std::array<int, 2> out{10 * me, 10 * me + 1}, in{-1, -1};
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Ineighbor_alltoall(out.data(), 1, MPI_INT, in.data(), 1, MPI_INT, line, &request));
  CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK_EQUAL(in[0], me == 0 ? -1 : 10 * (me - 1) + 1);
  CROSSLANE_CHECK_EQUAL(in[1], me + 1 == program.size ? -1 : 10 * (me + 1));
  MPI_Comm_free(&line);
}

// More than the board has places: those that come when it is full go to MPI, and are right; a place that is given back serves another one.
void crowded(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr std::size_t places = 256;
  std::vector<MPI_Comm> made(places, MPI_COMM_NULL);  // one more, with the world
  for (MPI_Comm& each : made) {
    MPI_Comm_dup(MPI_COMM_WORLD, &each);
    int one = 1, all = 0;
    CROSSLANE_MPI(
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, each));  // no memory for it in the windows, but a place
  }
  const auto direct = [&](MPI_Comm communicator, const char* name) {
    const Job job(program, communicator, name);
    job.warm_up();
    const std::int64_t before = direct_calls(Kind::allreduce);
    job.run(sum_of_ints(3000, program.seed, 3), on_the_gpu(), program.local());
    return direct_calls(Kind::allreduce) - before;
  };
  CROSSLANE_CHECK_EQUAL(direct(made.back(), "one too many"), std::int64_t{0});
  beside_neighbours(program);
  MPI_Comm_free(&made.front());
  MPI_Comm_dup(MPI_COMM_WORLD, &made.front());
  CROSSLANE_CHECK_EQUAL(direct(made.front(), "in the place of another one"), std::int64_t{world.in_turns() ? 0 : 3});
  for (MPI_Comm& each : made) MPI_Comm_free(&each);
}

// A communicator whose making nobody saw, and what is made from it: they stay with MPI, and are right.
void strangers(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  std::array<MPI_Comm, 2> made{plain_mpi_duplicate(MPI_COMM_WORLD), MPI_COMM_NULL};
  MPI_Comm_dup(made[0], &made[1]);
  for (MPI_Comm& each : made) {
    {
      const Job job(program, each, "a communicator whose making was not seen");
      job.warm_up();
      const std::int64_t before = direct_calls(Kind::allreduce);
      job.run(sum_of_ints(3000, program.seed, 3), on_the_gpu(), program.local());
      CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce), before);
    }
    MPI_Comm_free(&each);
  }
}

// CROSSLANE_EMULATED_FAULTS makes preparing fail: all goes through the host, whatever the others could do.
void refused(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  for (const std::size_t units : {std::size_t{1}, std::size_t{5000}, std::size_t{300000}})
    world.run(sum_of_ints(units, mix(program.seed, units), 3), on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce), std::int64_t{0});
}

// Ranks close each other's freed memory while they go on with other messages: what the application allocates in its place, and MPI never sees, can
// be opened by another library, which a driver refuses as long as the freed memory is open.
void lets_go(Program& program) {
  constexpr int bytes = 4 << 20;
  const int after = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  Memory known(MemoryKind::device, bytes), received(MemoryKind::device, bytes);
  const auto exchange = [&](const void* sent, int count) {
    CROSSLANE_MPI(MPI_Sendrecv(sent, count, MPI_BYTE, after, 0, received.data(), count, MPI_BYTE, before, 0,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  };
  CUdeviceptr first = 0, second = 0;
  CROSSLANE_CUDA(cuMemAlloc(&first, bytes));
  for (int i = 0; i < 3; ++i) {
    exchange(known.data(), bytes);
    exchange(reinterpret_cast<void*>(first), bytes);
  }
  CROSSLANE_CUDA(cuMemFree(first));
  CROSSLANE_CUDA(cuMemAlloc(&second, bytes));
  CUipcMemHandle own{}, theirs{};
  CROSSLANE_CUDA(cuIpcGetMemHandle(&own, second));
  CROSSLANE_MPI(MPI_Sendrecv(&own, sizeof own, MPI_BYTE, after, 1, &theirs, sizeof theirs, MPI_BYTE, before, 1,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  for (int i = 0; i < 40;
       ++i) {  // with memory that the others have open already: what is new to them makes them look at the rest, too
    exchange(known.data(), 64);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CUdeviceptr opened = 0;
  CROSSLANE_CUDA(cuIpcOpenMemHandle(&opened, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CROSSLANE_CUDA(cuIpcCloseMemHandle(opened));
  polite_barrier();
  CROSSLANE_CUDA(cuMemFree(second));
}

// What else they have open they use as before, while they close freed memory, each at its own time.
void keeps(Program& program) {
  if (!kernels_may_wait(program)) return;
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr int count = 80'000;
  constexpr std::size_t bytes = count * sizeof(int);
  const auto sum = [](CUdeviceptr from, CUdeviceptr to) {
    CROSSLANE_MPI(MPI_Allreduce(reinterpret_cast<void*>(from), reinterpret_cast<void*>(to), count, MPI_INT, MPI_SUM,
                                MPI_COMM_WORLD));
  };
  std::array<CUdeviceptr, 2> known{}, freed{};
  for (CUdeviceptr& buffer : known) CROSSLANE_CUDA(cuMemAlloc(&buffer, bytes));
  for (int call = 0; call < 3; ++call) sum(known[0], known[1]);
  for (int round = 0; round < 6; ++round) {  // of sets of buffers a few are known at a time
    CROSSLANE_STEP("round {}", round);
    for (CUdeviceptr& buffer : freed) CROSSLANE_CUDA(cuMemAlloc(&buffer, bytes));
    for (int call = 0; call < 3; ++call) sum(freed[0], freed[1]);
    for (const CUdeviceptr buffer : freed) CROSSLANE_CUDA(cuMemFree(buffer));
    for (int call = 0; call < 8; ++call) {
      const std::int64_t before = direct_calls(Kind::allreduce, "two_shot");
      sum(known[0], known[1]);
      CROSSLANE_CHECK(direct_calls(Kind::allreduce, "two_shot") == before + 1, "call {} found nothing mapped", call);
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
  }
  polite_barrier();
  for (const CUdeviceptr buffer : known) CROSSLANE_CUDA(cuMemFree(buffer));
}

// Takes all of the GPU's memory but less than half a mebibyte, of an emulated one that is not large.
std::vector<CUdeviceptr> fill_gpu() {
  std::vector<CUdeviceptr> taken;
  for (std::size_t bytes = std::size_t{256} << 20; bytes >= std::size_t{256} << 10;) {
    CUdeviceptr piece = 0;
    if (cuMemAlloc(&piece, bytes) == CUDA_SUCCESS)
      taken.push_back(piece);
    else
      bytes /= 2;
  }
  return taken;
}

// The GPU is full: buffers that were never passed before, and those that have to be copied, go direct all the same.
void full(Program& program) {
  if (!gpus_are_emulated()) return program.skip("it fills the GPU, which is large here, and perhaps others'");
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr int count = 5 << 20;
  constexpr auto bytes = std::size_t{count} * sizeof(int);
  Memory fresh(MemoryKind::device, bytes), managed(MemoryKind::managed, bytes);
  const auto taken = fill_gpu();
  const auto own = [&](int rank) {
    std::vector<int> values(count);
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i % 1000 + rank;
    return values;
  };
  for (Memory* const memory : {&fresh, &managed}) {
    CROSSLANE_STEP("memory of kind {}", name(memory->kind()));
    memory->fill(own(program.rank));
    const std::int64_t before = direct_calls(Kind::allreduce);
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, memory->data(), count, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - before, std::int64_t{world.in_turns() ? 0 : 1});
    CROSSLANE_CHECK(memory->values<int>() == own(program.size - 1), "wrong maxima");
  }
  // Every third element of what the first rank has.
  CROSSLANE_STEP("a vector");
  MPI_Datatype thirds = MPI_DATATYPE_NULL;
  MPI_Type_vector(count / 3, 1, 3, MPI_INT, &thirds);
  MPI_Type_commit(&thirds);
  fresh.fill(own(program.rank));
  CROSSLANE_MPI(MPI_Bcast(fresh.data(), 1, thirds, 0, MPI_COMM_WORLD));
  auto expected = own(program.rank);
  const auto first = own(0);
  for (std::size_t i = 0; i + 2 < expected.size(); i += 3) expected[i] = first[i];
  CROSSLANE_CHECK(fresh.values<int>() == expected, "wrong elements of the vector");
  MPI_Type_free(&thirds);
  // Blocks of different lengths, for which there are lists.
  CROSSLANE_STEP("blocks");
  std::vector<int> lengths(20000), places(lengths.size());
  int place = 0, sum = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = 1 + static_cast<int>(program.local().below(60));
    places[i] = place;
    place += lengths[i] + static_cast<int>(program.local().below(60));
    sum += lengths[i];
  }
  MPI_Datatype blocks = MPI_DATATYPE_NULL;
  MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_INT, &blocks);
  MPI_Type_commit(&blocks);
  fresh.fill(own(program.rank));
  std::vector<int> packed(static_cast<std::size_t>(sum));
  CROSSLANE_MPI(MPI_Sendrecv(fresh.data(), 1, blocks, program.rank, 0, packed.data(), sum, MPI_INT, program.rank, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  std::vector<int> wanted;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (int j = 0; j < lengths[i]; ++j) wanted.push_back((places[i] + j) % 1000 + program.rank);
  CROSSLANE_CHECK(packed == wanted, "wrong blocks");
  MPI_Type_free(&blocks);
  for (const CUdeviceptr piece : taken) CROSSLANE_CUDA(cuMemFree(piece));
}

// There is no memory for what is prepared (the settings' fault), and later there is: then calls go direct on all ranks.
void recovers(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  constexpr int tries = 30, most_staged = 20;
  const std::int64_t before = direct_calls(Kind::allreduce);
  world.run(sum_of_ints(5000, program.seed, tries), on_the_gpu(), program.local());
  const std::int64_t direct = direct_calls(Kind::allreduce) - before;
  CROSSLANE_CHECK(world.in_turns() || direct >= tries - most_staged, "{} of {} calls went direct", direct, tries);
}

// The same of what shows others whether they can read this rank's messages; which way these went is for the settings to print.
void door(Program& program) {
  constexpr std::size_t bytes = std::size_t{9} << 20;  // worth reading where ranks take turns, too
  Memory sent(MemoryKind::device, bytes), received(MemoryKind::device, bytes);
  const int after = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  sent.write(pattern(mix(program.seed, program.rank), bytes));
  for (int round = 0; round < 30; ++round) {
    CROSSLANE_MPI(MPI_Sendrecv(sent.data(), bytes, MPI_BYTE, after, 0, received.data(), bytes, MPI_BYTE, before, 0,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  CROSSLANE_CHECK(received.read() == pattern(mix(program.seed, before), bytes), "what rank {} sent", before);
}

// Each rank passes memory of its GPU first, and of another one later, `calls` times: that is right all the same, and told, for the settings to
// look at.
void elsewhere(Program& program, bool sends, int calls) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  const Device other(program.device()->ordinal() + 1);
  if (other.ordinal() == program.device()->ordinal()) return program.skip("there is one GPU");
  program.device()->make_current();
  const int after = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  const auto exchange = [&](int rounds, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    Memory sent(MemoryKind::device, bytes), received(MemoryKind::device, bytes);
    sent.write(pattern(mix(program.seed, program.rank), bytes));
    for (int round = 0; round < rounds; ++round) {
      CROSSLANE_MPI(MPI_Sendrecv(sent.data(), count, MPI_BYTE, after, 0, received.data(), count, MPI_BYTE, before, 0,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    CROSSLANE_CHECK(received.read() == pattern(mix(program.seed, before), bytes), "what rank {} sent", before);
  };
  world.warm_up();
  if (sends) exchange(3, std::size_t{9} << 20);
  other.make_current();
  if (sends)
    exchange(calls, 200'000);
  else
    world.run(sum_of_ints(world.in_turns() ? direct_in_turns_from : 3000, program.seed, calls), on_the_gpu(),
              program.local());
  program.device()->make_current();
}
void elsewhere_sent(Program& program) { elsewhere(program, true, 1000); }
void elsewhere_combined(Program& program) { elsewhere(program, false, 1000); }
void elsewhere_seldom(Program& program) { elsewhere(program, true, 10); }

// The preferred algorithm cannot have what it needs on some rank: all ranks take another one, where kernels need not take turns.
void events(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const std::int64_t before = direct_calls(Kind::allreduce);
  world.run(sum_of_ints(5000, program.seed, 3), on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - before, std::int64_t{world.in_turns() ? 0 : 3});
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce, "gsb"), std::int64_t{0});
}

// Rank 1 comes only once rank 0's watchdog has named it.
void missing(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const Told told(program);
  if (program.rank == 1) told.await();
  // One that goes direct: what is staged waits inside the MPI.
  const Case what = sum_of_ints(world.in_turns() ? direct_in_turns_from : 100, program.seed);
  if (program.rank == 0) {
    const Listener listener(told.path(), {"MPI_Allreduce on MPI_COMM_WORLD, call ", ", peer 1"});
    world.run(what, on_the_gpu(), program.local());
  } else {
    world.run(what, on_the_gpu(), program.local());
  }
}

// Of a call in which the last rank cannot launch a kernel.
void expect_blame(const Program& program, int code) {
  CROSSLANE_CHECK(code != MPI_SUCCESS, "no error");
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  const std::string expected = program.rank == program.size - 1
                                   ? "cuLaunchKernel"
                                   : fmt::format("rank {} of the communicator failed", program.size - 1);
  CROSSLANE_CHECK(std::string(text.data()).find(expected) != std::string::npos, "{}", text.data());
}

// The last rank, in whose window a host-driven all-reduce gathers, fails in the second one (the settings' fault): all are told, nobody
// hangs, and later calls are right again.
void fails(Program& program) {
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const Case what = sum_of_ints(1000, program.seed);
  world.run(what, on_the_gpu(), program.local());
  CROSSLANE_STEP("a call in which the last rank fails");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Memory data(MemoryKind::device, 100 * sizeof(int));
  expect_blame(program, MPI_Allreduce(MPI_IN_PLACE, data.data(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  const std::int64_t before = direct_calls(Kind::allreduce, "gsb");
  world.run(what, on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce, "gsb") - before, std::int64_t{1});
}

// Of kernels that wait for one another the last rank launches none in a call: the others' would wait for ten times the watchdog's time, and
// what they have written be taken for the next call's. That, and what has been started behind it, goes through the host.
void falls(Program& program, bool started) {
  if (!kernels_may_wait(program)) return;
  const Job world(program, MPI_COMM_WORLD, "the world");
  world.warm_up();
  const Case what = sum_of_ints(1000, program.seed);
  const std::int64_t before = direct_calls(Kind::allreduce);
  world.run(what, on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - before, std::int64_t{1});
  if (const auto arm = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "crosslane_emulated_arm")); arm != nullptr)
    arm();
  CROSSLANE_STEP("a call that the last rank does not begin");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  Memory data(MemoryKind::device, 100 * sizeof(int)), more(MemoryKind::device, 100 * sizeof(int));
  if (!started) {
    expect_blame(program, MPI_Allreduce(MPI_IN_PLACE, data.data(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  } else {
    std::array<MPI_Request, 2> requests{};
    CROSSLANE_MPI(MPI_Iallreduce(MPI_IN_PLACE, data.data(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD, requests.data()));
    CROSSLANE_MPI(MPI_Iallreduce(MPI_IN_PLACE, more.data(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]));
    expect_blame(program, MPI_Wait(requests.data(), MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) != MPI_SUCCESS, "no error");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  const std::int64_t direct = direct_calls(Kind::allreduce);
  world.run(sum_of_ints(1000, mix(program.seed, 1), 3), on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - direct, std::int64_t{0});
  CROSSLANE_STEP("a communicator of its own");
  MPI_Comm copy = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  const Job again(program, copy, "a duplicate");
  again.warm_up();
  again.run(what, on_the_gpu(), program.local());
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - direct, std::int64_t{1});
  MPI_Comm_free(&copy);
}
void falls_blocking(Program& program) { falls(program, false); }
void falls_started(Program& program) { falls(program, true); }

// Threads, each with a communicator of its own, all at once.
void threads(Program& program) {
  constexpr int most = 3;
  std::vector<Job> jobs;
  for (int thread = 0; thread < most; ++thread) {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, thread % 2 == 0 ? program.rank : -program.rank, &made);
    jobs.emplace_back(program, made, fmt::format("thread {}", thread));
    jobs.back().warm_up();
  }
  const std::int64_t before = direct_calls(Kind::allreduce);
  const auto cases = program.option("cases", 30);
  std::atomic<std::int64_t> expected{0};
  std::vector<std::thread> running;
  running.reserve(most);
  for (int thread = 0; thread < most; ++thread) {
    running.emplace_back([&program, &jobs, &expected, thread, cases] {
      program.device()->make_current();
      Random local(mix(program.seed, thread, program.rank));
      for (std::int64_t number = 0; number < cases; ++number) {
        Random random(mix(program.seed, thread, number, 9));
        const auto units = random.pick(std::array<std::size_t, 5>{1, 1000, 20000, 70000, 200000});
        constexpr int repeats = 3;
        const Job& job = jobs[static_cast<std::size_t>(thread)];
        const Case what = sum_of_ints(units, random.next(), repeats);
        if (job.goes_direct(what)) expected += repeats;
        job.run(what, on_the_gpu(), local);
      }
      CROSSLANE_STEP("thread {} is done", thread);
    });
  }
  for (auto& thread : running) thread.join();
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::allreduce) - before, expected.load());
  for (const Job& job : jobs) {
    MPI_Comm communicator = job.communicator();
    MPI_Comm_free(&communicator);
  }
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  return run_part(argc, argv, "direct_upkeep",
                  {{"buffers", buffers},
                   {"communicators", communicators},
                   {"crowded", crowded},
                   {"strangers", strangers},
                   {"lets_go", lets_go},
                   {"keeps", keeps},
                   {"full", full},
                   {"refused", refused},
                   {"recovers", recovers},
                   {.name = "one_recovers", .run = recovers, .before = only_last_rank_fails},
                   {"door", door},
                   {"elsewhere_sent", elsewhere_sent},
                   {"elsewhere_combined", elsewhere_combined},
                   {"elsewhere_seldom", elsewhere_seldom},
                   {"reused", reused},
                   {"events", events},
                   {"missing", missing},
                   {.name = "fails", .run = fails, .before = only_last_rank_fails},
                   {.name = "falls", .run = falls_blocking, .before = only_last_rank_fails},
                   {.name = "falls_started", .run = falls_started, .before = only_last_rank_fails},
                   {"threads", threads, MPI_THREAD_MULTIPLE}});
}
