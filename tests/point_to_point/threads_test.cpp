// MPI_THREAD_MULTIPLE: several threads a rank exchange messages in every kind of memory at once, each over a
// communicator of its own and over one that all share (with tags of its own). It must not know Crosslane.
#include "support/threads.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

class Worker {
 public:
  Worker(const Program& program, int thread, MPI_Comm own, MPI_Comm shared)
      : program_(program),
        thread_(thread),
        own_(own),
        shared_(shared),
        local_(mix(program.seed, program.rank, thread)) {}

  void run(std::int64_t cases) {
    for (std::int64_t number = 0; number < cases; ++number) {
      Random random(mix(program_.seed, thread_, number, 3));  // the same on all ranks
      bytes_ = random.bytes(std::size_t{1} << 20);
      communicator_ = random.chance(50) ? own_ : shared_;
      tag_ = thread_ * 8;
      seed_ = random.next();
      const auto shift = random.between(1, program_.size);
      to_ = (program_.rank + shift) % program_.size;
      from_ = (program_.rank + 2 * program_.size - shift) % program_.size;
      const auto way = random.below(5);
      CROSSLANE_STEP("thread {}, case {}: way {}, {} bytes from {} to {}", thread_, number, way, bytes_, from_, to_);
      exchange(way);
    }
  }

 private:
  [[nodiscard]] Memory outgoing() {
    Memory memory(program_.kind(local_), bytes_);
    memory.write(pattern(mix(seed_, program_.rank), bytes_));
    return memory;
  }
  void check(const Memory& memory) const {
    CROSSLANE_CHECK(memory.read() == pattern(mix(seed_, from_), bytes_), "{} bytes in {} memory", bytes_,
                    name(memory.kind()));
  }

  void exchange(std::uint64_t way) {
    const int count = static_cast<int>(bytes_);
    const auto out = outgoing();
    Memory in(program_.kind(local_), bytes_);
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    switch (way) {
      case 0:
        CROSSLANE_MPI(MPI_Irecv(in.data(), count, MPI_BYTE, from_, tag_, communicator_, requests.data()));
        CROSSLANE_MPI(MPI_Isend(out.data(), count, MPI_BYTE, to_, tag_, communicator_, &requests[1]));
        for (auto& request : requests) polite_wait(request);
        break;
      case 1:
        CROSSLANE_MPI(MPI_Isend(out.data(), count, MPI_BYTE, to_, tag_, communicator_, requests.data()));
        CROSSLANE_MPI(MPI_Recv(in.data(), count, MPI_BYTE, from_, tag_, communicator_, MPI_STATUS_IGNORE));
        polite_wait(requests[0]);
        break;
      case 2:
        CROSSLANE_MPI(MPI_Sendrecv(out.data(), count, MPI_BYTE, to_, tag_, in.data(), count, MPI_BYTE, from_, tag_,
                                   communicator_, MPI_STATUS_IGNORE));
        break;
      case 3:
        CROSSLANE_MPI(MPI_Recv_init(in.data(), count, MPI_BYTE, from_, tag_, communicator_, requests.data()));
        CROSSLANE_MPI(MPI_Send_init(out.data(), count, MPI_BYTE, to_, tag_, communicator_, &requests[1]));
        CROSSLANE_MPI(MPI_Startall(2, requests.data()));
        CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
        for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
        break;
      default: {
        CROSSLANE_MPI(MPI_Issend(out.data(), count, MPI_BYTE, to_, tag_, communicator_, requests.data()));
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        CROSSLANE_MPI(MPI_Mprobe(from_, tag_, communicator_, &message, &status));
        int probed = -1;
        CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &probed));
        CROSSLANE_CHECK_EQUAL(probed, count);
        CROSSLANE_MPI(MPI_Mrecv(in.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE));
        polite_wait(requests[0]);
        break;
      }
    }
    check(in);
  }

  const Program& program_;
  int thread_;
  MPI_Comm own_, shared_;
  Random local_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::size_t bytes_ = 0;
  std::uint64_t seed_ = 0;
  int from_ = 0, to_ = 0, tag_ = 0;
};

void run(Program& program, std::int64_t threads, std::int64_t cases) {
  MPI_Comm shared = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &shared));
  run_on_threads(program, threads, cases,
                 [&](int thread, MPI_Comm own) { return std::make_unique<Worker>(program, thread, own, shared); });
  CROSSLANE_MPI(MPI_Comm_free(&shared));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_threads", MPI_THREAD_MULTIPLE);
  run(program, program.option("threads", 3), program.option("cases", 60));
  return program.finish();
}
