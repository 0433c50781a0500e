// Exchanges that MPI promises to finish although one side sits in a blocking call of something else (MPI 5.0, sections
// 3.5, 3.7.4 and 6.12): a library that moves GPU memory must not need that side's help. At 8 B, 64 KiB and 65 MiB
// (--large for another size than the last, --least and --most to bound), with GPU memory on both sides or on one (--pair of four; 4: another
// one for each scenario but the first), of long ones mostly on both; --first is the scenario to begin with. It must not know Crosslane.
#include "support/program.h"
#include "support/sharing.h"
#include "support/words.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

/// What one scenario runs with. Even ranks are the first side of a pair, odd ones the second; a last rank without a
/// peer takes part in barriers and collectives only.
struct Setting {
  Program& program;
  const Words& words;
  std::size_t bytes;
  MemoryKind first_kind, second_kind;
  std::uint64_t seed;

  [[nodiscard]] bool first() const { return program.rank % 2 == 0; }
  [[nodiscard]] int peer() const { return program.rank ^ 1; }
  [[nodiscard]] bool paired() const { return peer() < program.size; }
  [[nodiscard]] MemoryKind kind() const { return first() ? first_kind : second_kind; }

  /// A buffer of this rank with what rank `from` sends as its message `number`; from -1: nothing yet.
  [[nodiscard]] Memory buffer(int from = -1, int number = 0) const {
    Memory memory(kind(), bytes);
    memory.write(pattern(mix(seed, from, number), bytes));
    return memory;
  }
  [[nodiscard]] Memory outgoing(int number = 0) const { return buffer(program.rank, number); }
  [[nodiscard]] Memory incoming() const { return buffer(); }
  void check(const Memory& memory, int from, int number, const char* what) const {
    CROSSLANE_CHECK(memory.read() == pattern(mix(seed, from, number), bytes), "{}: {} bytes in {} memory from rank {}",
                    what, bytes, name(memory.kind()), from);
  }
  void check_received(const Memory& memory, const char* what, int number = 0) const {
    check(memory, peer(), number, what);
  }
  void check_sent(const Memory& memory, const char* what, int number = 0) const {
    check(memory, program.rank, number, what);
  }
  [[nodiscard]] int count() const { return static_cast<int>(bytes); }
};

void barrier() { CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

void wait(MPI_Request& request) { CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE)); }

MPI_Request isend(const Setting& with, const Memory& memory, int tag = 0) {
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Isend(memory.data(), with.count(), MPI_BYTE, with.peer(), tag, MPI_COMM_WORLD, &request));
  return request;
}

MPI_Request irecv(const Setting& with, const Memory& memory, int tag = 0) {
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(memory.data(), with.count(), MPI_BYTE, with.peer(), tag, MPI_COMM_WORLD, &request));
  return request;
}

void recv(const Setting& with, const Memory& memory, int tag = 0) {
  CROSSLANE_MPI(MPI_Recv(memory.data(), with.count(), MPI_BYTE, with.peer(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

using Sides = std::pair<std::function<void(const Setting&)>, std::function<void(const Setting&)>>;

// Most scenarios are one message from the first side to the second.
Sides one_way(std::function<void(const Setting&, const Memory&)> sender,
              std::function<void(const Setting&, const Memory&)> receiver) {
  return {[sender](const Setting& with) {
            const auto memory = with.outgoing();
            sender(with, memory);
            with.check_sent(memory, "the sent buffer");
          },
          [receiver](const Setting& with) {
            const auto memory = with.incoming();
            receiver(with, memory);
            with.check_received(memory, "the received buffer");
          }};
}

Sides both(const std::function<void(const Setting&)>& side) { return {side, side}; }

// Every rank sends to its peer and receives from it.
Sides head_to_head(std::function<void(const Setting&, const Memory& out, const Memory& in)> exchange) {
  return both([exchange](const Setting& with) {
    const auto out = with.outgoing();
    const auto in = with.incoming();
    exchange(with, out, in);
    with.check_sent(out, "the sent buffer");
    with.check_received(in, "the received buffer");
  });
}

// A nonblocking collective; even ranks enter the barrier with it pending, odd ones complete it before.
void around_barrier(const Setting& with, MPI_Request& request) {
  if (with.first()) {
    barrier();
    wait(request);
  } else {
    wait(request);
    barrier();
  }
}

void iallreduce(const Setting& with) {
  const auto elements = with.bytes / sizeof(int);
  std::vector<int> mine(elements), expected(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    mine[i] = with.program.rank + static_cast<int>(i % 1000);
    expected[i] = with.program.size * (with.program.size - 1) / 2 + with.program.size * static_cast<int>(i % 1000);
  }
  Memory in(with.kind(), elements * sizeof(int)), out(with.kind(), elements * sizeof(int));
  in.fill(mine);
  out.fill(mine);
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(
      MPI_Iallreduce(in.data(), out.data(), static_cast<int>(elements), MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  around_barrier(with, request);
  CROSSLANE_CHECK(out.values<int>() == expected, "the sum of {} ints in {} memory", elements, name(with.kind()));
}

void ibcast(const Setting& with) {
  const auto memory = with.program.rank == 0 ? with.outgoing() : with.incoming();
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Ibcast(memory.data(), with.count(), MPI_BYTE, 0, MPI_COMM_WORLD, &request));
  around_barrier(with, request);
  with.check(memory, 0, 0, "the broadcast buffer");
}

// All ranks shift to the right at once.
void sendrecv_ring(const Setting& with) {
  const int size = with.program.size, left = (with.program.rank + size - 1) % size,
            right = (with.program.rank + 1) % size;
  const auto out = with.outgoing();
  const auto in = with.incoming();
  CROSSLANE_MPI(MPI_Sendrecv(out.data(), with.count(), MPI_BYTE, right, 1, in.data(), with.count(), MPI_BYTE, left, 1,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  with.check_sent(out, "the sent buffer");
  with.check(in, left, 0, "the received buffer");
  CROSSLANE_MPI(
      MPI_Sendrecv_replace(out.data(), with.count(), MPI_BYTE, left, 2, right, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  with.check(out, right, 0, "the replaced buffer");
}

constexpr int outstanding = 6;
constexpr std::size_t most_outstanding = std::size_t{96} << 20;  // bytes of all together

Setting each_of_many(Setting with) {
  with.bytes = std::min(with.bytes, most_outstanding / outstanding);
  return with;
}

// Many sends are under way when the receiver asks for the last one first.
void send_many(const Setting& given, bool barrier_first) {
  const auto with = each_of_many(given);
  std::vector<Memory> memory;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < outstanding; ++i) {
    memory.push_back(with.outgoing(i));
    requests.push_back(isend(with, memory.back(), i));
  }
  if (barrier_first) barrier();
  CROSSLANE_MPI(MPI_Waitall(outstanding, requests.data(), MPI_STATUSES_IGNORE));
  if (!barrier_first) barrier();
  for (int i = 0; i < outstanding; ++i) with.check_sent(memory[static_cast<std::size_t>(i)], "a sent buffer", i);
}

void receive_many_reversed(const Setting& given) {
  const auto with = each_of_many(given);
  for (int i = outstanding; i-- > 0;) {
    const auto memory = with.incoming();
    recv(with, memory, i);
    with.check_received(memory, "a received buffer", i);
  }
  barrier();
}

// Many receives are under way when one of them is waited for, which looks at the others, too; then all their senders' help is gone.
void send_many_receive_some(const Setting& given, bool sends) {
  const auto with = each_of_many(given);
  std::vector<Memory> memory;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < outstanding; ++i) {
    memory.push_back(sends ? with.outgoing(i) : with.incoming());
    requests.push_back(sends ? isend(with, memory.back(), i) : irecv(with, memory.back(), i));
  }
  if (sends) {
    CROSSLANE_MPI(MPI_Waitall(outstanding, requests.data(), MPI_STATUSES_IGNORE));
  } else {
    wait(requests[with.seed % outstanding]);
  }
  barrier();
  CROSSLANE_MPI(MPI_Waitall(outstanding, requests.data(), MPI_STATUSES_IGNORE));
  for (int i = 0; i < outstanding; ++i) {
    if (sends)
      with.check_sent(memory[static_cast<std::size_t>(i)], "a sent buffer", i);
    else
      with.check_received(memory[static_cast<std::size_t>(i)], "a received buffer", i);
  }
}

// The same from several ranks.
void send_to_first(const Setting& given) {
  const auto with = each_of_many(given);
  const int rank = with.program.rank, size = with.program.size;
  if (rank != 0) {
    const auto memory = with.outgoing();
    CROSSLANE_MPI(MPI_Ssend(memory.data(), with.count(), MPI_BYTE, 0, 0, MPI_COMM_WORLD));
    barrier();
    with.check_sent(memory, "the sent buffer");
    return;
  }
  std::vector<Memory> memory;
  std::vector<MPI_Request> requests(static_cast<std::size_t>(size) - 1, MPI_REQUEST_NULL);
  for (int from = 1; from < size; ++from) {
    memory.push_back(with.incoming());
    CROSSLANE_MPI(MPI_Irecv(memory.back().data(), with.count(), MPI_BYTE, from, 0, MPI_COMM_WORLD,
                            &requests[static_cast<std::size_t>(from) - 1]));
  }
  int done = 0;
  CROSSLANE_MPI(MPI_Waitany(size - 1, requests.data(), &done, MPI_STATUS_IGNORE));
  barrier();
  CROSSLANE_MPI(MPI_Waitall(size - 1, requests.data(), MPI_STATUSES_IGNORE));
  for (int from = 1; from < size; ++from)
    with.check(memory[static_cast<std::size_t>(from) - 1], from, 0, "a received buffer");
}

// A send that has returned needs nothing of its rank any more.
void send_and_leave(const Setting& with, const Memory& memory) {
  const auto& word = with.words.of(with.program.rank);
  const int before = word.load();
  CROSSLANE_MPI(MPI_Send(memory.data(), with.count(), MPI_BYTE, with.peer(), 0, MPI_COMM_WORLD));
  while (word.load() == before) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

// Its receiver comes when that has taken long.
void receive_late(const Setting& with, const Memory& memory) {
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  recv(with, memory);
  ++with.words.of(with.program.rank);
}

struct Scenario {
  const char* text;
  Sides sides;
  bool collective = false;  // a rank without a peer takes part, else it joins `barriers` barriers only
  int barriers = 1;
};

std::vector<Scenario> scenarios() {
  const auto send_barrier = [](auto function) {
    return [function](const Setting& with, const Memory& memory) {
      CROSSLANE_MPI(function(memory.data(), with.count(), MPI_BYTE, with.peer(), 0, MPI_COMM_WORLD));
      barrier();
    };
  };
  const auto isend_barrier_wait = [](const Setting& with, const Memory& memory) {
    auto request = isend(with, memory);
    barrier();
    wait(request);
  };
  const auto irecv_barrier_wait = [](const Setting& with, const Memory& memory) {
    auto request = irecv(with, memory);
    barrier();
    wait(request);
  };
  const auto recv_barrier = [](const Setting& with, const Memory& memory) {
    recv(with, memory);
    barrier();
  };
  const auto barrier_recv = [](const Setting& with, const Memory& memory) {
    barrier();
    recv(with, memory);
  };
  return {
      {"Isend; Barrier; Wait against Recv; Barrier", one_way(isend_barrier_wait, recv_barrier)},
      {"Isend; Barrier; Wait against Irecv; Barrier; Wait", one_way(isend_barrier_wait, irecv_barrier_wait)},
      {"Isend; Barrier; Wait against Barrier; Recv", one_way(isend_barrier_wait, barrier_recv)},
      {"Send; Barrier against Irecv; Barrier; Wait", one_way(send_barrier(MPI_Send), irecv_barrier_wait)},
      {"Ssend; Barrier against Irecv; Barrier; Wait", one_way(send_barrier(MPI_Ssend), irecv_barrier_wait)},
      {"Issend; Barrier; Wait against Recv; Barrier",
       one_way(
           [](const Setting& with, const Memory& memory) {
             MPI_Request request = MPI_REQUEST_NULL;
             CROSSLANE_MPI(MPI_Issend(memory.data(), with.count(), MPI_BYTE, with.peer(), 0, MPI_COMM_WORLD, &request));
             barrier();
             wait(request);
           },
           recv_barrier)},
      {"Start; Barrier; Wait against Recv; Barrier", one_way(
                                                         [](const Setting& with, const Memory& memory) {
                                                           MPI_Request request = MPI_REQUEST_NULL;
                                                           CROSSLANE_MPI(MPI_Send_init(memory.data(), with.count(),
                                                                                       MPI_BYTE, with.peer(), 0,
                                                                                       MPI_COMM_WORLD, &request));
                                                           CROSSLANE_MPI(MPI_Start(&request));
                                                           barrier();
                                                           wait(request);
                                                           CROSSLANE_MPI(MPI_Request_free(&request));
                                                         },
                                                         recv_barrier)},
      {"Bsend; Barrier against Barrier; Recv",
       one_way(
           [send_barrier](const Setting& with, const Memory& memory) {
             std::vector<std::byte> space(with.bytes + MPI_BSEND_OVERHEAD + 4096);
             CROSSLANE_MPI(MPI_Buffer_attach(space.data(), static_cast<int>(space.size())));
             send_barrier(MPI_Bsend)(with, memory);
             void* same = nullptr;
             int bytes = 0;
             CROSSLANE_MPI(MPI_Buffer_detach(&same, &bytes));
           },
           barrier_recv)},
      {"Isend; Barrier; Wait against Probe; Recv; Barrier",
       one_way(isend_barrier_wait,
               [](const Setting& with, const Memory& memory) {
                 MPI_Status status;
                 CROSSLANE_MPI(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
                 int count = 0;
                 CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
                 CROSSLANE_CHECK_EQUAL(count, with.count());
                 recv(with, memory);
                 barrier();
               })},
      {"Isend; Ssend(host, other tag); Wait against Recv; Recv",
       one_way(
           [](const Setting& with, const Memory& memory) {
             auto request = isend(with, memory);
             int word = 1;
             CROSSLANE_MPI(MPI_Ssend(&word, 1, MPI_INT, with.peer(), 1, MPI_COMM_WORLD));
             wait(request);
           },
           [](const Setting& with, const Memory& memory) {
             recv(with, memory);
             int word = 0;
             CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_INT, with.peer(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
           }),
       false, 0},
      {"Isend; Recv(host); Wait against Recv; Send(host)",
       one_way(
           [](const Setting& with, const Memory& memory) {
             auto request = isend(with, memory);
             int word = 0;
             CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_INT, with.peer(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
             wait(request);
           },
           [](const Setting& with, const Memory& memory) {
             recv(with, memory);
             int word = 1;
             CROSSLANE_MPI(MPI_Send(&word, 1, MPI_INT, with.peer(), 1, MPI_COMM_WORLD));
           }),
       false, 0},
      {"Isend; Recv; Wait on both sides", head_to_head([](const Setting& with, const Memory& out, const Memory& in) {
         auto request = isend(with, out);
         recv(with, in);
         wait(request);
       }),
       false, 0},
      {"Irecv; Send; Wait on both sides", head_to_head([](const Setting& with, const Memory& out, const Memory& in) {
         auto request = irecv(with, in);
         CROSSLANE_MPI(MPI_Send(out.data(), with.count(), MPI_BYTE, with.peer(), 0, MPI_COMM_WORLD));
         wait(request);
       }),
       false, 0},
      {"Irecv; Isend; Barrier; Waitall on both sides",
       head_to_head([](const Setting& with, const Memory& out, const Memory& in) {
         std::array<MPI_Request, 2> requests{irecv(with, in), isend(with, out)};
         barrier();
         CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
       })},
      {"Sendrecv and Sendrecv_replace around all ranks", both(sendrecv_ring), true},
      {"Iallreduce; Barrier; Wait against Iallreduce; Wait; Barrier", both(iallreduce), true},
      {"Ibcast; Barrier; Wait against Ibcast; Wait; Barrier", both(ibcast), true},
      {"six Isends; Barrier; Waitall against six Recvs in reverse order; Barrier",
       {[](const Setting& with) { send_many(with, true); }, receive_many_reversed}},
      {"six Isends; Waitall; Barrier against six Recvs in reverse order; Barrier",
       {[](const Setting& with) { send_many(with, false); }, receive_many_reversed}},
      {"six Isends; Waitall; Barrier against six Irecvs; Wait; Barrier; Waitall",
       {[](const Setting& with) { send_many_receive_some(with, true); },
        [](const Setting& with) { send_many_receive_some(with, false); }}},
      {"Send; no MPI until that is received against a late Recv", one_way(send_and_leave, receive_late), false, 0},
      {"Ssend; Barrier against Irecvs from all; Waitany; Barrier; Waitall", both(send_to_first), true},
  };
}

void run(const Setting& with, const Scenario& scenario) {
  CROSSLANE_STEP("{}, {} bytes, from {} to {} memory", scenario.text, with.bytes, name(with.first_kind),
                 name(with.second_kind));
  if (!with.paired() && !scenario.collective) {
    for (int i = 0; i < scenario.barriers; ++i) barrier();
  } else {
    (with.first() ? scenario.sides.first : scenario.sides.second)(with);
  }
  polite_barrier();
}

std::vector<std::pair<MemoryKind, MemoryKind>> kinds(Program& program) {
  if (program.memory() == "host") return {{MemoryKind::host, MemoryKind::host}};
  auto& random = program.shared();
  std::vector<std::pair<MemoryKind, MemoryKind>> result{{program.kind(random), program.kind(random)}};
  if (program.memory() == "random" || program.memory() == "mixed")
    result = {{MemoryKind::device, MemoryKind::device},
              {MemoryKind::device, MemoryKind::host},
              {MemoryKind::host, MemoryKind::device},
              {program.kind(random), program.kind(random)}};
  return result;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "progress");
  const Words words;
  // Whoever expects a route by which GPUs reach each other is told why there is none.
  if (program.memory() != "host" && take_turns(MPI_COMM_WORLD) && program.rank == 0)
    fmt::print(stderr, "progress: ranks take turns on a GPU\n");
  auto all = scenarios();
  std::ranges::rotate(all, all.begin() + program.option("first", 0) % static_cast<std::ptrdiff_t>(all.size()));
  const auto large = static_cast<std::size_t>(program.option("large", std::int64_t{65} << 20));
  const auto least = static_cast<std::size_t>(program.option("least", 0)),
             most = static_cast<std::size_t>(program.option("most", static_cast<std::int64_t>(large)));
  const auto pair = program.option("pair", -1);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, large}) {
    if (bytes < least || bytes > most) continue;
    auto pairs = kinds(program);
    if (pair >= 0 && pair < 4) pairs = {pairs[static_cast<std::size_t>(pair) % pairs.size()]};
    // Tens of megabytes take long.
    if (pair == 4 || bytes > std::size_t{1} << 20) {
      for (const auto& scenario : all) {
        const bool both_gpus = &scenario == &all.front() || (pair != 4 && program.shared().chance(50));
        const auto& [first, second] = pairs[both_gpus ? 0 : program.shared().below(pairs.size())];
        run({program, words, bytes, first, second, program.shared().next()}, scenario);
      }
      continue;
    }
    for (const auto& [first, second] : pairs)
      for (const auto& scenario : all) run({program, words, bytes, first, second, program.shared().next()}, scenario);
  }
  return program.finish();
}
