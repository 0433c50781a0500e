// Receives whose requests are freed while they are active: the data is there once something that came behind it tells that it is, a later
// message of the same sender, a barrier or another collective. Two ranks. It must not know Crosslane.
#include "support/program.h"

#include <sched.h>

#include <array>
#include <cstddef>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int tag = 3;

enum class Sign { recv, mrecv, sendrecv, wait, waitall, test, testsome, barrier, allreduce, bcast };
[[nodiscard]] constexpr bool is_collective(Sign sign) { return sign >= Sign::barrier; }
constexpr std::array signs{"MPI_Recv", "MPI_Mrecv",    "MPI_Sendrecv", "MPI_Wait",      "MPI_Waitall",
                           "MPI_Test", "MPI_Testsome", "MPI_Barrier",  "MPI_Allreduce", "MPI_Bcast"};

class Rank {
 public:
  explicit Rank(Program& program) : program_(program), peer_(program.rank ^ 1) {}

  void round(int number) {
    auto& random = program_.shared();
    const std::size_t sizes[] = {1, 8, 40, 255, 256, 4000, 100'000, 3'000'000};
    const std::size_t bytes = random.pick(sizes);
    const bool persistent = random.chance(30);
    const auto sign = static_cast<Sign>(random.below(signs.size()));
    count_ = static_cast<int>(random.below(2));
    Memory memory(program_.kind(), bytes);
    CROSSLANE_STEP("round {}: {} bytes in {} memory, {}, told by {} of {}", number, bytes, name(memory.kind()),
                   persistent ? "persistent" : "nonblocking", signs.at(static_cast<std::size_t>(sign)), count_);
    const auto sent = pattern(mix(program_.seed, number), bytes);
    const int count = static_cast<int>(bytes);
    const MPI_Comm world = MPI_COMM_WORLD;
    if (program_.rank == 0) {
      memory.write(sent);
      CROSSLANE_MPI(MPI_Barrier(world));
      CROSSLANE_MPI(MPI_Send(memory.data(), count, MPI_BYTE, peer_, tag, world));
      give(sign);
      if (is_collective(sign)) give(Sign::recv);
    } else {
      memory.write(std::vector<std::byte>(bytes, std::byte{0x11}));
      MPI_Request request = MPI_REQUEST_NULL;
      if (persistent) {
        CROSSLANE_MPI(MPI_Recv_init(memory.data(), count, MPI_BYTE, peer_, tag, world, &request));
        CROSSLANE_MPI(MPI_Start(&request));
      } else {
        CROSSLANE_MPI(MPI_Irecv(memory.data(), count, MPI_BYTE, peer_, tag, world, &request));
      }
      CROSSLANE_MPI(MPI_Request_free(&request));
      CROSSLANE_MPI(MPI_Barrier(world));
      take(sign);
      // Collectives of MPICH 5.0 receive no messages on the way, which MPI does not ask of them: in memory of the host it is there behind the next one.
      const bool on_host = memory.kind() == MemoryKind::host || memory.kind() == MemoryKind::pinned;
      const auto check = [&] { CROSSLANE_CHECK(memory.read() == sent, "what a freed receive got is not there"); };
      if (!on_host || !is_collective(sign)) check();
      if (is_collective(sign)) {
        take(Sign::recv);
        check();
      }
    }
    polite_barrier();
  }

 private:
  void give(Sign sign) {
    if (!together(sign)) CROSSLANE_MPI(MPI_Send(&value_, count_, MPI_INT, peer_, tag, MPI_COMM_WORLD));
  }

  // What both ranks call alike. False: it is a message.
  bool together(Sign sign) {
    const MPI_Comm world = MPI_COMM_WORLD;
    int other = 0;
    switch (sign) {
      case Sign::sendrecv:
        CROSSLANE_MPI(MPI_Sendrecv(&value_, count_, MPI_INT, peer_, tag, &other, count_, MPI_INT, peer_, tag, world,
                                   MPI_STATUS_IGNORE));
        return true;
      case Sign::barrier:
        CROSSLANE_MPI(MPI_Barrier(world));
        return true;
      case Sign::allreduce:
        CROSSLANE_MPI(MPI_Allreduce(&value_, &other, 1, MPI_INT, MPI_SUM, world));
        return true;
      case Sign::bcast:
        CROSSLANE_MPI(MPI_Bcast(&value_, 1, MPI_INT, 0, world));
        return true;
      default:
        return false;
    }
  }

  void take(Sign sign) {
    if (together(sign)) return;
    const MPI_Comm world = MPI_COMM_WORLD;
    if (sign == Sign::recv) {
      CROSSLANE_MPI(MPI_Recv(&value_, count_, MPI_INT, peer_, tag, world, MPI_STATUS_IGNORE));
      return;
    }
    if (sign == Sign::mrecv) {
      MPI_Message message = MPI_MESSAGE_NULL;
      CROSSLANE_MPI(MPI_Mprobe(peer_, tag, world, &message, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Mrecv(&value_, count_, MPI_INT, &message, MPI_STATUS_IGNORE));
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(&value_, count_, MPI_INT, peer_, tag, world, &request));
    int done = 0, index = 0;
    switch (sign) {
      case Sign::test:
        while (done == 0) {
          CROSSLANE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
          if (done == 0) sched_yield();
        }
        break;
      case Sign::testsome:
        while (done == 0) {
          CROSSLANE_MPI(MPI_Testsome(1, &request, &done, &index, MPI_STATUSES_IGNORE));
          if (done == 0) sched_yield();
        }
        break;
      case Sign::waitall:
        CROSSLANE_MPI(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
        break;
      default:
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
  }

  Program& program_;
  const int peer_;
  int count_ = 0;  // of what comes behind
  int value_ = 7;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_freed");
  Rank rank(program);
  const auto cases = static_cast<int>(program.option("cases", 80));
  for (int i = 0; i < cases; ++i) rank.round(i);
  return program.finish();
}
