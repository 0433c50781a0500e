// Senders that wait for no receiver (CROSSLANE_PATIENCE_MS=0), while the host has no memory for a copy: they wait after all, and nothing fails. The
// program's own malloc refuses what is long. It must not know Crosslane.
#include "support/beneath.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/words.h"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

extern "C" void* __libc_malloc(std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)

namespace {

constexpr std::size_t none = ~std::size_t{0};
constinit std::atomic<std::size_t> least_refused{none};
constinit std::atomic<std::atomic<int>*> refusals{nullptr};  // their number

}  // namespace

// Of this program and of the libraries that it loads, operator new included.
extern "C" void* malloc(std::size_t bytes) noexcept {
  if (bytes < least_refused.load(std::memory_order_relaxed)) return __libc_malloc(bytes);
  if (auto* const count = refusals.load()) ++*count;
  return nullptr;
}

namespace crosslane::tests {
namespace {

// Of which a copy of all is refused, blocks and chunks are not.
constexpr std::size_t bytes = std::size_t{24} << 20, least = std::size_t{8} << 20;

// Until a sender's memory was refused: the MPI itself matches its message, and nobody above does anything about it.
void stay_away(const std::atomic<int>& refused, int before) {
  constexpr int unused_tag = 1000;
  auto* const probe = beneath(&MPI_Iprobe, "PMPI_Iprobe");
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (refused.load() == before && std::chrono::steady_clock::now() < patience) {
    int there = 0;
    CROSSLANE_MPI(probe(0, unused_tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE));
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

// Gaps of a byte in every eight.
MPI_Datatype gaps() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(bytes / 8, 7, 8, MPI_BYTE, &type));
  CROSSLANE_MPI(MPI_Type_commit(&type));
  return type;
}

int run(int argc, char** argv) {
  Program program(argc, argv, "point_to_point_shortage");
  MPI_Datatype with_gaps = gaps();
  Memory memory(MemoryKind::device, bytes);
  const auto sent = pattern(mix(program.seed, 1), bytes);
  // What a rank sends to one that has not found yet whether it can read is copied to the host in any case. Short ones: a long copy's memory might be
  // kept for the next one.
  constexpr int little = 1 << 20;
  for (int first = 0; first < 3; ++first) {
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (program.rank == 0)
      CROSSLANE_MPI(MPI_Send(memory.data(), little, MPI_BYTE, 1, first, MPI_COMM_WORLD));
    else
      CROSSLANE_MPI(MPI_Recv(memory.data(), little, MPI_BYTE, 0, first, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  const Words words;
  auto& refused = words.of(program.rank);
  refusals = &refused;
  for (int round = 0; round < 6; ++round) {
    const bool plain = round % 2 == 0, blocking = round % 3 == 0 || program.option("started", 1) == 0;
    CROSSLANE_STEP("round {}: {}, {}", round, plain ? "contiguous" : "with gaps", blocking ? "blocking" : "started");
    const MPI_Datatype type = plain ? MPI_BYTE : with_gaps;
    const int count = plain ? static_cast<int>(bytes) : 1;
    const int before = refused.load();
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (program.rank == 0) {
      memory.write(sent);
      least_refused = least;
      MPI_Request request = MPI_REQUEST_NULL;
      if (blocking)
        CROSSLANE_MPI(MPI_Send(memory.data(), count, type, 1, round, MPI_COMM_WORLD));
      else
        CROSSLANE_MPI(MPI_Isend(memory.data(), count, type, 1, round, MPI_COMM_WORLD, &request));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      least_refused = none;
      CROSSLANE_CHECK(refused.load() > before, "nothing was refused");
    } else {
      memory.write(std::vector<std::byte>(bytes, std::byte{1}));
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Irecv(memory.data(), count, type, 0, round, MPI_COMM_WORLD, &request));
      stay_away(refused, before);
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      auto expected = sent;
      for (std::size_t i = 7; !plain && i < bytes; i += 8) expected[i] = std::byte{1};
      CROSSLANE_CHECK(memory.read() == expected, "what was received");
    }
  }
  refusals = nullptr;
  CROSSLANE_MPI(MPI_Type_free(&with_gaps));
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
