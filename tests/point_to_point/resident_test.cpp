// CROSSLANE_UNMAP=at_rest: messages beside a kernel of the program's own that waits for what its host does after them, while their sender frees and allocates,
// the first one of a pair among them. What is then still open of freed memory is given back once the GPU rests, which real GPUs show: the emulated driver
// counts it as free. It must not know Crosslane.
#include "support/check.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/words.h"

#include <cuda.h>
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t bytes = std::size_t{8} << 20;

// Work of this process that ends when open() is called: a word that a stream waits for, as a kernel would.
class Resident {
 public:
  explicit Resident(unsigned flags) {
    void* memory = nullptr;
    CROSSLANE_CUDA(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    word_ = new (memory) std::atomic<std::uint64_t>(1);
    CUdeviceptr address = 0;
    CROSSLANE_CUDA(cuMemHostGetDevicePointer(&address, memory, 0));
    address_ = address;
    CROSSLANE_CUDA(cuStreamCreate(&stream_, flags));
  }
  void begin() {
    word_->store(0);
    CROSSLANE_CUDA(cuStreamWaitValue64(stream_, address_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void end() {
    word_->store(1);
    CROSSLANE_CUDA(cuStreamSynchronize(stream_));
  }

 private:
  std::atomic<std::uint64_t>* word_ = nullptr;
  CUdeviceptr address_ = 0;
  CUstream stream_ = nullptr;
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CROSSLANE_CUDA(cuMemGetInfo(&free, &total));
  return free;
}

class Pair {
 public:
  explicit Pair(Program& program) : program_(program), in_(MemoryKind::device, bytes) {}

  // One message to rank 1, of a pattern of its own.
  void pass(Memory* out, int source = 0) {
    const int tag = ++messages_ % 1000;
    const auto sent = pattern(mix(program_.seed, messages_), bytes);
    if (program_.rank == source) {
      out->write(sent);
      CROSSLANE_MPI(MPI_Send(out->data(), static_cast<int>(bytes), MPI_BYTE, 1, tag, MPI_COMM_WORLD));
    } else if (program_.rank == 1) {
      CROSSLANE_MPI(
          MPI_Recv(in_.data(), static_cast<int>(bytes), MPI_BYTE, source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      last_ = sent;
    }
  }
  // What came last; not while something is resident, for reading may wait for it.
  void check() const {
    if (program_.rank == 1) CROSSLANE_CHECK(in_.read() == last_, "message {}", messages_);
  }

 private:
  Program& program_;
  Memory in_;
  std::vector<std::byte> last_;
  int messages_ = 0;
};

void beside_a_resident(Program& program, Pair& pair, unsigned flags, int rounds) {
  Resident resident(flags);
  std::optional<Memory> out;
  const auto renew = [&] {
    if (program.rank != 0) return;
    out.reset();
    out.emplace(MemoryKind::device, bytes);
  };
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {} beside a {} stream", round, flags == CU_STREAM_NON_BLOCKING ? "non-blocking" : "blocking");
    renew();
    for (int i = 0; i < 4; ++i) pair.pass(out ? &*out : nullptr);
    pair.check();
    polite_barrier();
    if (program.rank == 1) resident.begin();
    if (round == 0 && flags == CU_STREAM_NON_BLOCKING) {
      std::optional<Memory> others;
      if (program.rank == 2) others.emplace(MemoryKind::device, bytes);
      for (int i = 0; i < 4; ++i) pair.pass(others ? &*others : nullptr, 2);
    }
    for (int i = 0; i < 6; ++i) {
      if (i % 2 == 0) renew();
      pair.pass(out ? &*out : nullptr);
    }
    polite_barrier();
    if (program.rank == 1) resident.end();
    pair.check();
  }
}

// All that rank 0 has freed comes back, once messages go on and nothing is resident.
void given_back(Program& program, Pair& pair, std::size_t before) {
  CROSSLANE_STEP("what was freed comes back");
  Memory out(MemoryKind::device, bytes);
  const Words words;
  auto& word = words.of(0);
  for (bool done = false; !done;) {
    for (int i = 0; i < 4; ++i) pair.pass(&out);
    pair.check();
    if (program.rank == 0 && free_bytes() + 2 * bytes > before) word.store(1);
    polite_barrier();
    done = word.load() != 0;
    polite_barrier();
  }
}

int run(int argc, char** argv) {
  Program program(argc, argv, "point_to_point_resident");
  Pair pair(program);
  {
    Memory out(MemoryKind::device, bytes);
    for (int i = 0; i < 8; ++i) pair.pass(&out);
  }
  const std::size_t before = free_bytes();
  const auto rounds = static_cast<int>(program.option("cases", 6));
  beside_a_resident(program, pair, CU_STREAM_NON_BLOCKING, rounds);
  beside_a_resident(program, pair, CU_STREAM_DEFAULT, rounds);
  given_back(program, pair, before);
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
