// A receive that is too long for its buffer is raised once, by the call that completes it, however many others have looked at it before: the
// error handlers of MPI_COMM_WORLD, MPI_COMM_SELF and of the message's communicator count. On which of them is the MPI's choice, but for calls that
// name the communicator. Two ranks.
#include "support/program.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace crosslane::tests {
namespace {

std::atomic<int> raised{0}, elsewhere{0};
std::atomic<MPI_Comm> expected{MPI_COMM_NULL};

void count(MPI_Comm* comm, int*, ...) {
  ++raised;
  if (*comm != expected) ++elsewhere;
}

int error_class(int code) {
  int value = MPI_SUCCESS;
  MPI_Error_class(code, &value);
  return value;
}

constexpr int cut_tag = 1, other_tag = 2, answer_tag = 3;

class Raised {
 public:
  explicit Raised(Program& program) : program_(program), peer_(program.rank ^ 1) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    CROSSLANE_MPI(MPI_Comm_create_errhandler(count, &handler));
    for (const MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF, comm_})
      CROSSLANE_MPI(MPI_Comm_set_errhandler(each, handler));
    CROSSLANE_MPI(MPI_Errhandler_free(&handler));
    expected = comm_;
  }
  ~Raised() { MPI_Comm_free(&comm_); }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

  void round(int number) {
    auto& random = program_.shared();
    // Of longer ones Open MPI 4.1 writes what is too long behind the buffer.
    const std::size_t bytes = random.between(2, 4000), room = random.between(1, static_cast<int>(bytes) - 1);
    const bool early = random.chance(50), together = random.chance(30);
    const bool persistent = random.chance(30) && !together;  // Open MPI's MPI_Waitall does not always tell of those
    const bool blocks = random.chance(30), exchanges = random.chance(50);
    CROSSLANE_STEP("round {}: {} bytes into {}{}{}{}{}", number, bytes, room, early ? ", early" : "",
                   together ? ", together" : "", persistent ? ", persistent" : "",
                   !blocks     ? ""
                   : exchanges ? ", by MPI_Sendrecv"
                               : ", by MPI_Recv");
    const Memory cut(program_.kind(), program_.rank == 1 ? bytes : room), other(program_.kind(), bytes);
    const int all = static_cast<int>(bytes), some = static_cast<int>(room);
    if (program_.rank == 1) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (!early) answer();
      CROSSLANE_MPI(MPI_Isend(cut.data(), all, MPI_BYTE, peer_, cut_tag, comm_, &request));
      if (early) answer();
      std::this_thread::sleep_for(std::chrono::milliseconds{program_.local().below(5)});
      CROSSLANE_MPI(MPI_Send(other.data(), all, MPI_BYTE, peer_, other_tag, comm_));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      return;
    }
    if (early) await_answer();
    if (blocks) {
      raised = elsewhere = 0;
      const int code = exchanges ? MPI_Sendrecv(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, cut.data(), some, MPI_BYTE,
                                                peer_, cut_tag, comm_, MPI_STATUS_IGNORE)
                                 : MPI_Recv(cut.data(), some, MPI_BYTE, peer_, cut_tag, comm_, MPI_STATUS_IGNORE);
      CROSSLANE_CHECK(code == MPI_SUCCESS || error_class(code) == MPI_ERR_TRUNCATE, "{}", describe_mpi_error(code));
      CROSSLANE_CHECK(raised == 1 && elsewhere == 0, "raised {} times, {} of these on other communicators",
                      raised.load(), elsewhere.load());
      CROSSLANE_MPI(MPI_Recv(other.data(), all, MPI_BYTE, peer_, other_tag, comm_, MPI_STATUS_IGNORE));
      if (!early) await_answer();
      return;
    }
    std::array<MPI_Request, 2> requests{};
    if (persistent) {
      CROSSLANE_MPI(MPI_Recv_init(cut.data(), some, MPI_BYTE, peer_, cut_tag, comm_, requests.data()));
      CROSSLANE_MPI(MPI_Start(requests.data()));
    } else {
      CROSSLANE_MPI(MPI_Irecv(cut.data(), some, MPI_BYTE, peer_, cut_tag, comm_, requests.data()));
    }
    CROSSLANE_MPI(MPI_Irecv(other.data(), all, MPI_BYTE, peer_, other_tag, comm_, &requests[1]));
    if (!early) await_answer();
    MPI_Request kept = requests[0];
    raised = 0;
    if (together) {
      std::array<MPI_Status, 2> statuses{};
      // Behind a handler of the program's MPICH 5.0 returns MPI_SUCCESS.
      const int code = MPI_Waitall(2, requests.data(), statuses.data());
      CROSSLANE_CHECK(code == MPI_ERR_IN_STATUS || code == MPI_SUCCESS, "MPI_Waitall: {}", code);
      if (code == MPI_ERR_IN_STATUS) {
        CROSSLANE_CHECK_EQUAL(error_class(statuses[0].MPI_ERROR), MPI_ERR_TRUNCATE);
        if (error_class(statuses[1].MPI_ERROR) == MPI_ERR_PENDING)
          CROSSLANE_CHECK_EQUAL(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_SUCCESS);
      }
    } else {
      CROSSLANE_CHECK_EQUAL(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_SUCCESS);
      // MPICH completes a persistent one to look at it.
      CROSSLANE_CHECK(raised == 0 || persistent, "raised by a call for another message");
      const int code = MPI_Wait(requests.data(), MPI_STATUS_IGNORE);
      CROSSLANE_CHECK(code == MPI_SUCCESS || error_class(code) == MPI_ERR_TRUNCATE, "{}", describe_mpi_error(code));
    }
    // MPI_Waitall asks until all is over, where MPICH has hidden so that one has failed.
    CROSSLANE_CHECK(raised == 1 || (together && raised > 1), "raised {} times", raised.load());
    if (persistent && requests[0] != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&kept));
  }

 private:
  void answer() { CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_BYTE, peer_, answer_tag, comm_)); }
  void await_answer() { CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, peer_, answer_tag, comm_, MPI_STATUS_IGNORE)); }

  Program& program_;
  const int peer_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_raised");
  {
    Raised rounds(program);
    const auto cases = static_cast<int>(program.option("cases", 100));
    for (int i = 0; i < cases; ++i) rounds.round(i);
  }
  return program.finish();
}
