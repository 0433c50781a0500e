// A rank dies before or in the middle of collectives between GPUs of a job that goes on: the others get errors that name it, and get rid of their
// communicators, and of MPI_Finalize as far as that is Crosslane's.
#include "bereaved.h"
#include "support/direct_calls.h"
#include "support/program.h"
#include "support/sharing.h"
#include "support/words.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int victim = 1;
constexpr int elements = direct_in_turns_from / sizeof(int);
constexpr int brief = 48 << 10;  // its send returns before it is received

// On each of its communicators the rank dies at another point.
enum Died { after_it_arrived, before_a_call, before_a_start, deaths };

// A message that its sender packs, and that is longer than what it can have packed before others have read of it.
class Irregular {
 public:
  Irregular() : memory_(MemoryKind::device, bytes) {
    std::vector<int> lengths, displacements;
    for (int at = 0; at + 100 < bytes; at += 70 + at % 31) {
      lengths.push_back(1 + at % 50);
      displacements.push_back(at);
    }
    CROSSLANE_MPI(
        MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), displacements.data(), MPI_BYTE, &type_));
    CROSSLANE_MPI(MPI_Type_commit(&type_));
  }
  ~Irregular() { MPI_Type_free(&type_); }
  Irregular(const Irregular&) = delete;
  Irregular& operator=(const Irregular&) = delete;

  [[nodiscard]] void* data() const { return memory_.data(); }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  static constexpr int bytes = 8 << 20;
  Memory memory_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_bereaved");
  alarm(50);  // a survivor that nobody ends must not outlive the test
  for (MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  Memory data(MemoryKind::device, elements * sizeof(int));
  data.fill(std::vector<int>(elements, program.rank));
  const auto reduce = [&](MPI_Comm communicator) {
    return MPI_Allreduce(MPI_IN_PLACE, data.data(), elements, MPI_INT, MPI_MAX, communicator);
  };
  const auto start = [&](MPI_Comm communicator, MPI_Request& request) {
    return MPI_Iallreduce(MPI_IN_PLACE, data.data(), elements, MPI_INT, MPI_MAX, communicator, &request);
  };
  std::array<MPI_Comm, deaths> all{};
  for (MPI_Comm& each : all) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &each));
    const auto before = direct_calls("allreduce");
    for (int call = 0; call < 3; ++call) {
      CROSSLANE_MPI(reduce(each));
      polite_barrier(each);
    }
    CROSSLANE_CHECK_EQUAL(direct_calls("allreduce") - before, std::int64_t{1});
  }
  const Words words;
  int process = getpid();
  CROSSLANE_MPI(MPI_Bcast(&process, 1, MPI_INT, victim, MPI_COMM_WORLD));
  polite_barrier();
  MPI_Request request = MPI_REQUEST_NULL;
  const Irregular message;
  const bool impatient = std::getenv("CROSSLANE_PATIENCE_MS") !=
                         nullptr;            // what nobody waits for is put aside at once, not left to the MPI
  for (int known = 0; known < 3; ++known) {  // that they read each other's memory is found out with the first ones
    if (program.rank == victim) CROSSLANE_MPI(MPI_Send(message.data(), 1, message.type(), 0, 2, MPI_COMM_WORLD));
    if (program.rank == 0)
      CROSSLANE_MPI(MPI_Recv(message.data(), 1, message.type(), victim, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (program.rank == victim) CROSSLANE_MPI(MPI_Send(message.data(), brief, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
    if (program.rank == 0) {
      CROSSLANE_MPI(MPI_Recv(message.data(), brief, MPI_BYTE, victim, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Send(message.data(), brief, MPI_BYTE, victim, 4, MPI_COMM_WORLD));
    }
    if (program.rank == victim)
      CROSSLANE_MPI(MPI_Recv(message.data(), brief, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  if (program.rank == victim) {
    CROSSLANE_MPI(MPI_Send(message.data(), brief, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
    MPI_Request sending = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Isend(message.data(), 1, message.type(), 0, 2, MPI_COMM_WORLD, &sending));
    CROSSLANE_MPI(start(all[after_it_arrived], request));
    // Its arrival, too, is others' affair on this rank: should it come to nothing, this is but another start that it does not come to.
    const auto late = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    for (int over = 0; std::chrono::steady_clock::now() < late; sched_yield())
      CROSSLANE_MPI(MPI_Test(&request, &over, MPI_STATUS_IGNORE));
    die();
  }
  await_death(process);
  const auto started = [&](MPI_Comm communicator) {
    CROSSLANE_MPI(start(communicator, request));
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const auto expect_error = [&](Died when, int code) {
    const std::string text = code == MPI_SUCCESS ? "no error" : describe_mpi_error(code);
    CROSSLANE_CHECK(text.find("rank 1 ") != std::string::npos, "{}", text);
    CROSSLANE_STEP("freeing communicator {}", static_cast<int>(when));
    CROSSLANE_MPI(MPI_Comm_free(&all[when]));
  };
  CROSSLANE_STEP("a call that the dead one has come to");
  expect_error(after_it_arrived, started(all[after_it_arrived]));
  CROSSLANE_STEP("a call that it does not come to");
  expect_error(before_a_call, reduce(all[before_a_call]));
  CROSSLANE_STEP("one that is started");
  expect_error(before_a_start, started(all[before_a_start]));
  const auto expect_named = [](int code) {
    const std::string text = code == MPI_SUCCESS ? "no error" : describe_mpi_error(code);
    CROSSLANE_CHECK(text.find("rank 1 of MPI_COMM_WORLD ended") != std::string::npos, "{}", text);
  };
  // Ranks of one GPU pass it otherwise: read from memory that outlives its process while it is mapped, or by the MPI, which waits for the dead.
  int gpus = 0;
  CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
  if (program.rank == 0 && gpus > 1) {
    CROSSLANE_STEP("a message that it had begun to send");
    expect_named(MPI_Recv(message.data(), 1, message.type(), victim, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_STEP("one that it had sent, and had put aside");
    const int put_aside = MPI_Recv(message.data(), brief, MPI_BYTE, victim, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (impatient) expect_named(put_aside);
    CROSSLANE_STEP("one that it does not receive");
    CROSSLANE_MPI(MPI_Send(message.data(), brief, MPI_BYTE, victim, 4, MPI_COMM_WORLD));
  }
  CROSSLANE_STEP("the end");
  for (int rank = 1; rank < program.size; ++rank) {
    int failed = failures();
    if (rank == victim) continue;
    if (program.rank == rank) CROSSLANE_MPI(MPI_Send(&failed, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
    if (program.rank == 0) CROSSLANE_MPI(MPI_Recv(&failed, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  finalize_beside(process, program.size - 1, words);
}
