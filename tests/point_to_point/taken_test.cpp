// What probes have taken from MPI stays what MPI would have kept: messages of communicators that are freed before they are received, and those
// whose receive was refused for its arguments. Error handlers may probe. Two ranks.
#include "support/program.h"

#include <array>
#include <cstddef>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int tag = 3;

int probed = 0;

// Of MPI_COMM_WORLD, where nothing is on its way.
void probe_in_handler(MPI_Comm*, int*, ...) {
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  ++probed;
}

class Rank {
 public:
  explicit Rank(Program& program) : program_(program), peer_(program.rank ^ 1) {}

  void round(int number) {
    auto& random = program_.shared();
    const std::size_t sizes[] = {1, 254, 255, 256, 4000, 100'000, 1'000'000};
    const std::size_t bytes = random.pick(sizes);
    const auto way = random.below(4);
    CROSSLANE_STEP("round {}: {} bytes, way {}", number, bytes, way);
    MPI_Comm comm = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    Memory memory(program_.kind(), bytes);
    const auto sent = pattern(mix(program_.seed, number), bytes);
    const int count = static_cast<int>(bytes);
    if (program_.rank == 0) {
      memory.write(sent);
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Isend(memory.data(), count, MPI_BYTE, peer_, tag, comm, &request));
      if (way < 3) CROSSLANE_MPI(MPI_Comm_free(&comm));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      if (way == 3) CROSSLANE_MPI(MPI_Comm_free(&comm));
      return;
    }
    memory.write(std::vector<std::byte>(bytes, std::byte{0x11}));
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status{};
    if (way == 2) CROSSLANE_MPI(MPI_Recv_init(memory.data(), count, MPI_BYTE, peer_, tag, comm, &request));
    if (way == 2)
      CROSSLANE_MPI(MPI_Probe(peer_, tag, comm, &status));
    else
      CROSSLANE_MPI(MPI_Mprobe(peer_, tag, comm, &message, &status));
    if (way < 3) {
      CROSSLANE_MPI(MPI_Comm_free(&comm));
      // It may get the handle of the one that is gone.
      if (way == 0) CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    }
    switch (way) {
      case 0:
        CROSSLANE_MPI(MPI_Mrecv(memory.data(), count, MPI_BYTE, &message, &status));
        CROSSLANE_MPI(MPI_Comm_free(&comm));
        break;
      case 1:
        CROSSLANE_MPI(MPI_Imrecv(memory.data(), count, MPI_BYTE, &message, &request));
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        break;
      case 2:
        CROSSLANE_MPI(MPI_Start(&request));
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        CROSSLANE_MPI(MPI_Request_free(&request));
        break;
      default:
        refused(comm, memory, message);
        CROSSLANE_MPI(MPI_Mrecv(memory.data(), count, MPI_BYTE, &message, &status));
        CROSSLANE_MPI(MPI_Comm_free(&comm));
    }
    CROSSLANE_CHECK(message == MPI_MESSAGE_NULL, "the message's handle is left");
    int received = -1;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
    CROSSLANE_CHECK_EQUAL(received, count);
    CROSSLANE_CHECK(memory.read() == sent, "{} bytes in {} memory, way {}", bytes, name(memory.kind()), way);
  }

  void handlers_probe() {
    CROSSLANE_STEP("error handlers that probe");
    MPI_Comm comm = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    CROSSLANE_MPI(MPI_Comm_create_errhandler(probe_in_handler, &handler));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, handler));
    CROSSLANE_MPI(MPI_Errhandler_free(&handler));
    Memory memory(program_.kind(), 1000);
    MPI_Request request = MPI_REQUEST_NULL;
    int there = 0;
    MPI_Irecv(memory.data(), 1000, MPI_BYTE, 99, tag, comm, &request);
    MPI_Iprobe(99, tag, comm, &there, MPI_STATUS_IGNORE);
    CROSSLANE_CHECK_EQUAL(probed, 2);
    CROSSLANE_MPI(MPI_Comm_free(&comm));
  }

 private:
  // All handlers return for so long: whom a refusal is raised on is another test's.
  void refused(MPI_Comm comm, Memory& memory, MPI_Message& message) const {
    const std::array<MPI_Comm, 3> all{MPI_COMM_WORLD, MPI_COMM_SELF, comm};
    std::array<MPI_Errhandler, 3> handlers{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      CROSSLANE_MPI(MPI_Comm_get_errhandler(all.at(i), &handlers.at(i)));
      CROSSLANE_MPI(MPI_Comm_set_errhandler(all.at(i), MPI_ERRORS_RETURN));
    }
    CROSSLANE_CHECK(MPI_Mrecv(memory.data(), -1, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS,
                    "a negative count was taken");
    CROSSLANE_CHECK(message != MPI_MESSAGE_NULL, "the refused call has used up the message");
    for (std::size_t i = 0; i < all.size(); ++i) {
      CROSSLANE_MPI(MPI_Comm_set_errhandler(all.at(i), handlers.at(i)));
      MPI_Errhandler_free(&handlers.at(i));
    }
  }

  Program& program_;
  const int peer_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_taken");
  Rank rank(program);
  const auto cases = static_cast<int>(program.option("cases", 60));
  for (int i = 0; i < cases; ++i) rank.round(i);
  rank.handlers_probe();
  return program.finish();
}
