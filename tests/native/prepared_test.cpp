// What crosslane_prepare makes and takes back: buffers that all ranks map, and calls that then use them where they lie;
// communicators that come and go. --what buffers|communicators|freed|early|asked|ahead
#include "native/enqueued.h"
#include "support/direct_calls.h"

#include <crosslane/crosslane.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t word = sizeof(std::uint32_t);

// Calls on two buffers at one offset, whose results the host knows.
class Pair {
 public:
  Pair(const Program& program, Memory& send, Memory& receive) : program_(program), send_(send), receive_(receive) {}

  // `name`: the algorithm that must take it.
  void run(Kind kind, std::size_t count, std::size_t offset, bool in_place, const char* name) {
    CROSSLANE_STEP("{} of {} words at {}{} by {}", kind_names.at(static_cast<std::size_t>(kind)), count, offset,
                   in_place ? ", in place" : "", name);
    const auto n = static_cast<std::size_t>(program_.size);
    const auto me = static_cast<std::size_t>(program_.rank);
    const std::uint64_t seed = mix(program_.seed, count, offset, ++calls_);
    const bool blocks = kind == Kind::alltoall || kind == Kind::reduce_scatter_block;
    const std::size_t mine = count * (blocks ? n : 1);
    const std::size_t result = count * (kind == Kind::allgather || kind == Kind::alltoall ? n : 1);
    Memory& from = in_place || kind == Kind::broadcast ? receive_ : send_;
    const std::size_t at = offset + (in_place && kind == Kind::allgather ? me * count * word : 0);
    const auto input = words_of(seed, program_.rank, mine);
    from.write(std::as_bytes(std::span(input)), at);
    const std::int64_t before = direct_calls(kind, name);
    {
      const NothingAllocated scope;
      enqueue(kind, count, offset, in_place);
    }
    CROSSLANE_CHECK_EQUAL(direct_calls(kind, name) - before, 1);
    stream_.finish();
    const auto bytes = receive_.read(offset, result * word);
    const auto wanted = expected(kind, seed, count);
    CROSSLANE_CHECK(std::memcmp(bytes.data(), wanted.data(), bytes.size()) == 0, "the result is wrong");
    polite_barrier();  // nobody writes the next call's input while others read this one's
  }

 private:
  void enqueue(Kind kind, std::size_t count, std::size_t offset, bool in_place) {
    auto* const receive = receive_.as<std::byte>() + offset;
    const void* const send = in_place ? MPI_IN_PLACE : send_.as<std::byte>() + offset;
    const auto n = static_cast<MPI_Count>(count);
    const MPI_Datatype type = MPI_UINT32_T;
    const MPI_Comm comm = MPI_COMM_WORLD;
    CUstream const on = stream_.handle();
    if (kind == Kind::allreduce) CROSSLANE_MPI(crosslane_allreduce_enqueue(send, receive, n, type, MPI_SUM, comm, on));
    if (kind == Kind::broadcast) CROSSLANE_MPI(crosslane_broadcast_enqueue(receive, n, type, root, comm, on));
    if (kind == Kind::allgather) CROSSLANE_MPI(crosslane_allgather_enqueue(send, n, type, receive, n, type, comm, on));
    if (kind == Kind::alltoall) CROSSLANE_MPI(crosslane_alltoall_enqueue(send, n, type, receive, n, type, comm, on));
    if (kind == Kind::reduce_scatter_block)
      CROSSLANE_MPI(crosslane_reduce_scatter_block_enqueue(send, receive, n, type, MPI_SUM, comm, on));
  }

  [[nodiscard]] std::vector<std::uint32_t> expected(Kind kind, std::uint64_t seed, std::size_t count) const {
    const auto n = static_cast<std::size_t>(program_.size);
    const auto me = static_cast<std::size_t>(program_.rank);
    if (kind == Kind::broadcast) return words_of(seed, root, count);
    const bool gathers = kind == Kind::allgather || kind == Kind::alltoall;
    const std::size_t first = kind == Kind::alltoall || kind == Kind::reduce_scatter_block ? me * count : 0;
    std::vector<std::uint32_t> result(gathers ? 0 : count);
    for (std::size_t rank = 0; rank < n; ++rank) {
      const auto theirs = words_of(seed, static_cast<int>(rank), first + count);
      for (std::size_t at = 0; at < count; ++at) {
        if (gathers)
          result.push_back(theirs[first + at]);
        else
          result[at] += theirs[first + at];
      }
    }
    return result;
  }

  static constexpr int root = 1;
  const Program& program_;
  Memory& send_;
  Memory& receive_;
  Stream stream_;
  int calls_ = 0;
};

// On one rank both buffers lie in one allocation, to whose end each goes; which is meant is known all the same.
void neighbouring_buffers(Program& program) {
  constexpr int root = 1;
  const std::size_t size = 512 * kib;
  const bool together = program.rank == 0;
  Memory first(MemoryKind::device, together ? 2 * size : size), alone(MemoryKind::device, size);
  Memory& second = together ? first : alone;
  const std::size_t at = together ? size : 0;
  const auto nothing = words_of(program.seed, -1, size / word), input = words_of(program.seed, root, size / word);
  first.write(std::as_bytes(std::span(nothing)), 0);
  second.write(std::as_bytes(std::span(program.rank == root ? input : nothing)), at);
  auto* const buffer = second.as<std::byte>() + at;
  prepare(MPI_COMM_WORLD, 0, {first.data(), buffer});
  const std::int64_t before = direct_calls(Kind::broadcast, "zero_copy");
  const Stream stream;
  CROSSLANE_MPI(crosslane_broadcast_enqueue(buffer, static_cast<MPI_Count>(size / word), MPI_UINT32_T, root,
                                            MPI_COMM_WORLD, stream.handle()));
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::broadcast, "zero_copy") - before, 1);
  stream.finish();
  polite_barrier();
  const auto holds = [&](const Memory& memory, std::size_t place, const std::vector<std::uint32_t>& words) {
    const auto bytes = memory.read(place, size);
    return std::memcmp(bytes.data(), words.data(), size) == 0;
  };
  CROSSLANE_CHECK(holds(second, at, input), "what was broadcast did not come where it belongs");
  CROSSLANE_CHECK(holds(first, 0, nothing), "the other buffer was written");
  prepare(MPI_COMM_WORLD, 0);
}

// Large calls with prepared buffers go straight between them, at any offset that all ranks have; others through library memory.
void buffers(Program& program) {
  const auto n = static_cast<std::size_t>(program.size);
  const std::size_t count = 300 * kib / word;
  // The last rank has more, which is of no use to it.
  const std::size_t size = (n + 2) * count * word + (program.rank + 1 == program.size ? 64 * kib : 0);
  Memory send(MemoryKind::device, size), receive(MemoryKind::device, size);
  Memory other_send(MemoryKind::device, size), other_receive(MemoryKind::device, size);
  Pair pair(program, send, receive), others(program, other_send, other_receive);
  prepare(MPI_COMM_WORLD, 0, {receive.data(), send.data()});
  for (const std::size_t offset : {std::size_t{0}, std::size_t{4}, std::size_t{1000}}) {
    for (const bool in_place : {false, true}) {
      pair.run(Kind::allreduce, count, offset, in_place, "two_shot");
      pair.run(Kind::allgather, count, offset, in_place, "zero_copy");
      pair.run(Kind::alltoall, count, offset, in_place, in_place ? "window" : "zero_copy");
      pair.run(Kind::reduce_scatter_block, count, offset, in_place, in_place ? "window" : "zero_copy");
    }
    pair.run(Kind::broadcast, count, offset, false, "zero_copy");
  }
  pair.run(Kind::allreduce, 1000, 0, false, "ll");
  pair.run(Kind::broadcast, 16 * kib / word, 4, false, "zero_copy");
  pair.run(Kind::broadcast, 16 * kib / word - 1, 4, false, "ll");  // too short for it; the shipped preferences follow
  // Not prepared, then prepared in place of the others.
  others.run(Kind::alltoall, count, 0, false, "window");
  prepare(MPI_COMM_WORLD, 0, {other_receive.data(), other_send.data()});
  others.run(Kind::alltoall, count, 0, false, "zero_copy");
  pair.run(Kind::alltoall, count, 0, false, "window");
  prepare(MPI_COMM_WORLD, 0);
  others.run(Kind::alltoall, count, 0, false, "window");
}

// Communicators that are prepared, used and freed, each with buffers of its own: all memory comes back.
void communicators(Program& program) {
  const auto rounds = program.option("rounds", 60);
  constexpr std::size_t count = 80000;
  std::size_t free_before = 0, free_after = 0, total = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round == 10) CROSSLANE_CUDA(cuMemGetInfo(&free_before, &total));
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, round % 2 == 0 ? program.rank : -program.rank, &made);
    Memory send(MemoryKind::device, count * word), receive(MemoryKind::device, count * word);
    prepare(made, count * word, {send.data(), receive.data()});
    CROSSLANE_STEP("round {}", round);
    const Stream stream;
    send.fill(std::vector<std::uint32_t>(count, static_cast<std::uint32_t>(round + program.rank)));
    for (int repeat = 0; repeat < 3; ++repeat)
      CROSSLANE_MPI(crosslane_allreduce_enqueue(send.data(), receive.data(), count, MPI_UINT32_T, MPI_MAX, made,
                                                stream.handle()));
    stream.finish();
    const auto last = static_cast<std::uint32_t>(round + program.size - 1);
    CROSSLANE_CHECK(receive.values<std::uint32_t>() == std::vector<std::uint32_t>(count, last), "the result is wrong");
    CROSSLANE_STEP("round {}: freeing the communicator", round);
    MPI_Comm_free(&made);
  }
  CROSSLANE_CUDA(cuMemGetInfo(&free_after, &total));
  // Some of the last rounds' buffers may still be mapped by others.
  constexpr std::size_t few = 80 * count * word;
  CROSSLANE_CHECK(free_after + few >= free_before, "{} bytes of GPU memory were free, {} rounds later {}", free_before,
                  rounds - 10, free_after);
}

// Ranks free communicators in orders of their own, and before others that wait for something else: who frees one does not wait until they do.
void freed(Program& program) {
  constexpr std::size_t many = 5, count = 1000;
  for (int round = 0; round < 12; ++round) {
    std::vector<MPI_Comm> made(many, MPI_COMM_NULL);
    Memory data(MemoryKind::device, count * word);
    const Stream stream;
    for (MPI_Comm& each : made) {
      CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &each));
      prepare(each, count * word);
      data.fill(std::vector<std::uint32_t>(count, 1));
      CROSSLANE_MPI(
          crosslane_allreduce_enqueue(MPI_IN_PLACE, data.data(), count, MPI_UINT32_T, MPI_SUM, each, stream.handle()));
      stream.finish();
      CROSSLANE_CHECK(data.values<std::uint32_t>().back() == static_cast<std::uint32_t>(program.size),
                      "the result is wrong");
    }
    CROSSLANE_STEP("round {}: freeing in other orders", round);
    program.local().shuffle(made);
    // Rank 0 sends behind the first, for which all others wait before theirs.
    int token = round;
    CROSSLANE_CHECK(program.size > 1, "a test of several ranks");
    if (program.rank != 0) CROSSLANE_MPI(MPI_Recv(&token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (std::size_t i = 0; i < many; ++i) {
      CROSSLANE_MPI(MPI_Comm_free(&made[i]));
      for (int rank = 1; program.rank == 0 && i == 0 && rank < program.size; ++rank)
        CROSSLANE_MPI(MPI_Send(&token, 1, MPI_INT, rank, 5, MPI_COMM_WORLD));
    }
  }
}

// Communicators that are freed before a call on them has begun anywhere: that is told, and the call has its memory for itself all the same; afterwards
// others get that, of which there is not enough for so many at once.
void early(Program& program) {
  constexpr int rounds = 8, looks = 10;
  constexpr std::size_t count = 1000;
  void* memory = nullptr;
  CUdeviceptr address = 0;
  CROSSLANE_CUDA(cuMemHostAlloc(&memory, sizeof(std::uint64_t), CU_MEMHOSTALLOC_DEVICEMAP));
  CROSSLANE_CUDA(cuMemHostGetDevicePointer(&address, memory, 0));
  auto* const open = new (memory) std::atomic<std::uint64_t>(0);
  Memory before(MemoryKind::device, count * word), behind(MemoryKind::device, count * word);
  Memory large(MemoryKind::device, std::size_t{8} << 20);  // in several launches
  const Stream stream, other;
  const auto sum = [&](Memory& data, MPI_Comm communicator, const Stream& on) {
    CROSSLANE_MPI(crosslane_allreduce_enqueue(MPI_IN_PLACE, data.data(), static_cast<MPI_Count>(data.size() / word),
                                              MPI_UINT32_T, MPI_SUM, communicator, on.handle()));
  };
  const auto made = [] {
    MPI_Comm communicator = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator));
    return communicator;
  };
  prepare(MPI_COMM_WORLD, count * word);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    CROSSLANE_STEP("round {}", round);
    MPI_Comm freed = made();
    prepare(freed, 0);
    for (Memory* const data : {&before, &behind}) data->fill(std::vector<std::uint32_t>(count, 1));
    sum(large, freed, stream);
    stream.finish();
    CROSSLANE_CUDA(cuStreamWaitValue64(stream.handle(), address, round, CU_STREAM_WAIT_VALUE_GEQ));
    sum(before, freed, stream);
    CROSSLANE_STEP("round {}: freeing the communicator too early", round);
    CROSSLANE_MPI(MPI_Comm_free(&freed));
    sum(behind, MPI_COMM_WORLD, other);
    other.finish();
    open->store(round);
    stream.finish();
    for (const Memory* const data : {&before, &behind})
      CROSSLANE_CHECK(
          data->values<std::uint32_t>() == std::vector<std::uint32_t>(count, static_cast<std::uint32_t>(program.size)),
          "the sum is wrong");
    // That all of it has ended comes out where communicators are made.
    for (int look = 0; look < looks; ++look) {
      MPI_Comm none = made();
      polite_barrier();
      CROSSLANE_MPI(MPI_Comm_free(&none));
    }
  }
  CROSSLANE_STEP("a window for large calls");
  MPI_Comm last = made();
  prepare(last, 0);
  const std::int64_t calls = direct_calls(Kind::reduce, "pipelined");
  CROSSLANE_MPI(
      crosslane_reduce_enqueue(before.data(), behind.data(), count, MPI_UINT32_T, MPI_SUM, 0, last, stream.handle()));
  CROSSLANE_CHECK_EQUAL(direct_calls(Kind::reduce, "pipelined") - calls, 1);
  stream.finish();
  CROSSLANE_MPI(MPI_Comm_free(&last));
  CROSSLANE_CUDA(cuMemFreeHost(memory));
}

// Of neighbours with several edges the MPI is asked how it matches them, in started calls beside these: what it has not told by the time that a
// communicator is freed must not keep it.
void asked(Program& program) {
  constexpr int count = 20000;
  constexpr std::size_t room = std::size_t{32} << 20;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  Memory send(MemoryKind::device, 2 * count * word), receive(MemoryKind::device, 2 * count * word);
  constexpr int rounds = 80;
  for (int round = 0; round < rounds; ++round) {
    MPI_Comm made = MPI_COMM_NULL;
    const std::array sources{left, left}, destinations{right, right};
    CROSSLANE_STEP("round {}: neighbours", round);
    CROSSLANE_MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources.data(), MPI_UNWEIGHTED, 2,
                                                 destinations.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
    CROSSLANE_STEP("round {}: preparing", round);
    prepare(made, room);
    for (int call = 0; call < (round % 8 == 0 ? 4 : 3); ++call) {
      CROSSLANE_STEP("round {}: started call {}", round, call);
      const auto sent = [&](int rank) {
        return words_of(mix(program.seed, round, call), rank, std::size_t{2} * count);
      };
      send.fill(sent(program.rank));
      const std::array counts{count, count}, at{0, count};
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Ineighbor_alltoallv(send.data(), counts.data(), at.data(), MPI_UINT32_T, receive.data(),
                                            counts.data(), at.data(), MPI_UINT32_T, made, &request));
      polite_wait(request);
      auto got = receive.values<std::uint32_t>(), wanted = sent(left);
      // MPIs differ in which of several edges is which.
      std::ranges::sort(got);
      std::ranges::sort(wanted);
      CROSSLANE_CHECK(got == wanted, "what came along the edges");
    }
    if (round == rounds - 1) {
      CROSSLANE_STEP("the memory for calls between GPUs");
      const auto before = direct_calls("allreduce");
      for (int call = 0; call < 4; ++call) {
        CROSSLANE_MPI(MPI_Allreduce(send.data(), receive.data(), count, MPI_UINT32_T, MPI_MAX, made));
        polite_barrier();
      }
      CROSSLANE_CHECK(direct_calls("allreduce") > before, "it is used up");
    }
    CROSSLANE_STEP("round {}: freeing the communicator", round);
    CROSSLANE_MPI(MPI_Comm_free(&made));
  }
}

// Rank 0 enqueues calls of every size and launches a graph of them before any other rank has begun: they wait for its word.
void ahead(Program& program) {
  constexpr std::array<std::size_t, 3> counts{100, 50000, 1500000};
  const MPI_Comm comm = MPI_COMM_WORLD;
  Memory data(MemoryKind::device, counts.back() * word), sums(MemoryKind::device, counts.back() * word);
  prepare(comm, 0, {data.data(), sums.data()});
  const Stream stream;
  for (int round = 0; round < 5; ++round) {
    CROSSLANE_STEP("round {}", round);
    const int first = round % program.size;
    data.fill(std::vector<std::uint32_t>(counts.back(), static_cast<std::uint32_t>(program.rank + round)));
    int token = round;
    if (program.rank != first) CROSSLANE_MPI(MPI_Recv(&token, 1, MPI_INT, first, 3, comm, MPI_STATUS_IGNORE));
    const auto enqueue_all = [&] {
      const NothingAllocated scope;
      for (const std::size_t count : counts) {
        const auto n = static_cast<MPI_Count>(count);
        CROSSLANE_MPI(
            crosslane_allreduce_enqueue(data.data(), sums.data(), n, MPI_UINT32_T, MPI_SUM, comm, stream.handle()));
      }
    };
    Graph graph(stream);
    enqueue_all();
    graph.end();
    enqueue_all();
    graph.launch();
    graph.launch();
    for (int rank = 0; program.rank == first && rank < program.size; ++rank)
      if (rank != first) CROSSLANE_MPI(MPI_Send(&token, 1, MPI_INT, rank, 3, comm));
    stream.finish();
    const int sum = program.size * (program.size - 1) / 2 + program.size * round;
    CROSSLANE_CHECK(
        sums.values<std::uint32_t>() == std::vector<std::uint32_t>(counts.back(), static_cast<std::uint32_t>(sum)),
        "a sum is wrong");
  }
  polite_barrier();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_prepared");
  const std::string what = program.text_option("what", "");
  if (can_prepare(program)) {
    if (what == "buffers") {
      neighbouring_buffers(program);
      buffers(program);
    }
    if (what == "communicators") communicators(program);
    if (what == "freed") freed(program);
    if (what == "early") early(program);
    if (what == "asked") asked(program);
    if (what == "ahead") ahead(program);
  }
  return program.finish();
}
