// Several threads query one request of a message until it is complete (MPI_Request_get_status), and only then one of them
// completes it: whoever hears that it is complete uses the buffer at once. And one thread queries a send of which another one asks all the time
// whether it can complete it, as nobody has received it. It must not know Crosslane.
#include "support/program.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

class Rank {
 public:
  explicit Rank(Program& program) : program_(program), peer_(program.rank ^ 1) {}

  void run(int cases) {
    for (number_ = 0; number_ < cases; ++number_) {
      Random random(mix(program_.seed, number_));  // the same on both ranks
      bytes_ = random.chance(30) ? random.bytes(1 << 12) : random.bytes(std::size_t{1} << 20);
      const bool sends = (random.below(2) == 0) == (program_.rank % 2 == 0);
      const bool asks = random.chance(70) ? sends : !sends;
      const bool synchronous = random.chance(50);
      CROSSLANE_STEP("case {}: {} bytes, the {} asks", number_, bytes_, sends == asks ? "sender" : "receiver");
      Memory memory(program_.kind(), bytes_);
      const auto all = pattern(mix(program_.seed, number_, 1), bytes_);
      const int count = static_cast<int>(bytes_);
      if (!asks) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      MPI_Request request = MPI_REQUEST_NULL;
      if (sends) {
        memory.write(all);
        const auto call = synchronous ? MPI_Issend : MPI_Isend;
        CROSSLANE_MPI(call(memory.data(), count, MPI_BYTE, peer_, 1, MPI_COMM_WORLD, &request));
      } else {
        memory.write(std::vector<std::byte>(bytes_, std::byte{0x11}));
        CROSSLANE_MPI(MPI_Irecv(memory.data(), count, MPI_BYTE, peer_, 1, MPI_COMM_WORLD, &request));
      }
      if (asks) ask(request, memory, sends, all);
      polite_wait(request);
      if (!sends && !asks) CROSSLANE_CHECK(memory.read() == all, "{} bytes in {} memory", bytes_, name(memory.kind()));
    }
    polite_barrier();
  }

  void query_beside_tests(int cases) {
    constexpr int bytes = 300'000, go_on = 2;
    for (int number = 0; number < cases; ++number) {
      CROSSLANE_STEP("case {}: a query beside tests", number);
      Memory memory(program_.kind(), bytes);
      memory.write(pattern(mix(program_.seed, number), bytes));
      if (program_.rank == 0) {
        MPI_Request request = MPI_REQUEST_NULL;
        CROSSLANE_MPI(MPI_Issend(memory.data(), bytes, MPI_BYTE, peer_, 1, MPI_COMM_WORLD, &request));
        const MPI_Request copy = request;
        std::thread tests([&] {
          if (program_.device() != nullptr) program_.device()->make_current();
          for (int flag = 0; flag == 0;) CROSSLANE_MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        });
        for (int i = 0; i < 200; ++i, sched_yield()) {
          int flag = 0;
          CROSSLANE_MPI(MPI_Request_get_status(copy, &flag, MPI_STATUS_IGNORE));
          CROSSLANE_CHECK(flag == 0, "query {} says that a send is complete that nobody has received", i);
        }
        CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_BYTE, peer_, go_on, MPI_COMM_WORLD));
        tests.join();
      } else {
        CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, peer_, go_on, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Recv(memory.data(), bytes, MPI_BYTE, peer_, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      }
      polite_barrier();
    }
  }

 private:
  // The first thread that hears of a send's end overwrites what was sent; each that hears of a receive's reads it.
  void ask(MPI_Request request, Memory& memory, bool sends, const std::vector<std::byte>& all) {
    std::atomic<bool> overwritten{false};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        if (program_.device() != nullptr) program_.device()->make_current();
        MPI_Status status;
        for (int flag = 0; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
        if (sends) {
          if (!overwritten.exchange(true)) memory.write(std::vector<std::byte>(bytes_, std::byte{0x77}));
          return;
        }
        int count = -1;
        CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
        CROSSLANE_CHECK_EQUAL(count, static_cast<int>(bytes_));
        CROSSLANE_CHECK(memory.read() == all, "{} bytes in {} memory, as a query told of them", bytes_,
                        name(memory.kind()));
      });
    }
    for (auto& thread : threads) thread.join();
  }

  Program& program_;
  const int peer_;
  int number_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_querying", MPI_THREAD_MULTIPLE);
  Rank rank(program);
  rank.run(static_cast<int>(program.option("cases", 100)));
  rank.query_beside_tests(10);
  return program.finish();
}
