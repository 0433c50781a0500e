// MPI_Startall of persistent messages of one tag, in GPU memory and host memory mixed: they come in the order of their requests, as they do with
// MPIs, which start them so. Two ranks.
#include "support/program.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t most = 100'000;

class Together {
 public:
  explicit Together(Program& program) : program_(program), peer_(1 - program.rank) {}

  void sequence(std::int64_t number) {
    auto& shared = program_.shared();
    const auto count = static_cast<std::size_t>(shared.between(2, 9));
    CROSSLANE_STEP("sequence {}: {} messages each way", number, count);
    std::vector<std::size_t> bytes[2];
    for (auto& each : bytes)
      for (std::size_t i = 0; i < count; ++i) each.push_back(shared.below(shared.chance(50) ? 300 : most));
    std::vector<Memory> sent, received;
    for (std::size_t i = 0; i < count; ++i) {
      sent.emplace_back(any_kind(), bytes[program_.rank][i]);
      received.emplace_back(any_kind(), most);
    }
    // Requests of sends and receives in any order among each other.
    std::vector<MPI_Request> requests;
    for (std::size_t sends = 0, receives = 0; requests.size() < 2 * count;) {
      const bool sends_next = receives == count || (sends < count && program_.local().chance(50));
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      if (sends_next) {
        const Memory& from = sent[sends++];
        CROSSLANE_MPI(
            MPI_Send_init(from.data(), static_cast<int>(from.size()), MPI_BYTE, peer_, 7, MPI_COMM_WORLD, &request));
      } else {
        CROSSLANE_MPI(MPI_Recv_init(received[receives++].data(), static_cast<int>(most), MPI_BYTE, peer_, 7,
                                    MPI_COMM_WORLD, &request));
      }
    }
    for (int start = 0; start < 5; ++start) {
      const std::uint64_t seed = shared.next();
      for (std::size_t i = 0; i < count; ++i) sent[i].write(pattern(mix(seed, program_.rank, i), sent[i].size()));
      CROSSLANE_MPI(MPI_Startall(static_cast<int>(requests.size()), requests.data()));
      CROSSLANE_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
      for (std::size_t i = 0; i < count; ++i)
        CROSSLANE_CHECK(received[i].read(0, bytes[peer_][i]) == pattern(mix(seed, peer_, i), bytes[peer_][i]),
                        "start {}, message {} of {} bytes", start, i, bytes[peer_][i]);
    }
    for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
  }

 private:
  // In host memory alone where there is no GPU.
  MemoryKind any_kind() {
    return program_.device() != nullptr && program_.local().chance(60) ? MemoryKind::device : MemoryKind::host;
  }

  Program& program_;
  const int peer_;
};

int run(int argc, char** argv) {
  Program program(argc, argv, "point_to_point_together");
  {
    Together together(program);
    const auto cases = program.option("cases", 40);
    for (std::int64_t i = 0; i < cases; ++i) together.sequence(i);
  }
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
