// Requests that are freed while they are pending, and whose GPU memory is freed before their data can be brought there: the program's
// mistake, which is no error of any later call, takes nothing from the other such requests, and keeps no rank from the end.
// It must not know Crosslane.
#include "support/program.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int bytes = 1000;
constexpr std::size_t megabytes = std::size_t{4} << 20;  // an allocation of its own: no neighbour shares its pages

// Begins an operation that writes to GPU memory, of which soon nothing is left.
template <class Begin>
void lose(Begin&& begin) {
  CUdeviceptr address = 0;
  CROSSLANE_CUDA(cuMemAlloc(&address, megabytes));
  MPI_Request request = MPI_REQUEST_NULL;
  begin(reinterpret_cast<void*>(address), &request);
  if (request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&request));
  CROSSLANE_CUDA(cuMemFree(address));
}

class Freed {
 public:
  explicit Freed(Program& program)
      : program_(program),
        left_((program.rank + program.size - 1) % program.size),
        right_((program.rank + 1) % program.size) {}

  // What is lost comes first, and what is kept behind it.
  void receives(Memory& kept) {
    others_go_on();  // what is taken for them is not taken where memory was lost
    CROSSLANE_STEP("receives into memory that is freed");
    const MPI_Comm world = MPI_COMM_WORLD;
    for (int tag = 0; tag < 2; ++tag)
      lose([&](void* memory, MPI_Request* request) {
        CROSSLANE_MPI(MPI_Irecv(memory, bytes, MPI_BYTE, left_, tag, world, request));
      });
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(kept.data(), bytes, MPI_BYTE, left_, 2, world, &request));
    CROSSLANE_MPI(MPI_Request_free(&request));
    CROSSLANE_MPI(MPI_Barrier(world));
    const auto sent = message_of(program_.rank);
    for (int tag = 0; tag < 3; ++tag) {
      if (tag == 1) others_go_on();
      CROSSLANE_MPI(MPI_Send(sent.data(), bytes, MPI_BYTE, right_, tag, world));
    }
  }

  void file() {
    CROSSLANE_STEP("reading a file into memory that is freed");
    const char* const folder = std::getenv("TMPDIR");
    const std::string path = fmt::format("{}/crosslane-freed-{}", folder == nullptr ? "/tmp" : folder, getpid());
    MPI_File file = MPI_FILE_NULL;
    CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                                MPI_INFO_NULL, &file));
    const auto sent = message_of(program_.rank);
    CROSSLANE_MPI(MPI_File_write_at(file, 0, sent.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    lose([&](void* memory, MPI_Request* request) {
      CROSSLANE_MPI(MPI_File_iread_at(file, 0, memory, bytes, MPI_BYTE, request));
    });
    CROSSLANE_MPI(
        MPI_File_close(&file));  // nobody but who has its request can tell whether it is over: it is waited for
  }

  [[nodiscard]] std::vector<std::byte> message_of(int rank) const { return pattern(mix(program_.seed, rank), bytes); }
  [[nodiscard]] int left() const { return left_; }

 private:
  // Other messages between GPUs, of which each looks after what is left.
  void others_go_on() {
    out_.write(message_of(program_.rank));
    for (int round = 0; round < 20; ++round) {
      CROSSLANE_MPI(MPI_Sendrecv(out_.data(), bytes, MPI_BYTE, right_, 9, in_.data(), bytes, MPI_BYTE, left_, 9,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(in_.read() == message_of(left_), "round {}", round);
    }
  }

  const Program& program_;
  const int left_, right_;
  Memory out_{MemoryKind::device, bytes},
      in_{MemoryKind::device, bytes};  // here: nothing may lie where memory was lost
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_freed");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const Device device(program.device()->ordinal());  // the memory outlives the frame's hold on the GPU
  auto freed = std::make_unique<Freed>(program);
  Memory kept(MemoryKind::device, bytes);
  kept.write(std::vector<std::byte>(bytes));
  const int status = program.finish([&] {
    freed->receives(kept);
    freed->file();
  });
  const Watchdog watchdog(60);
  CROSSLANE_STEP("after MPI_Finalize");
  CROSSLANE_CHECK(kept.read() == freed->message_of(freed->left()), "what comes behind memory that was lost");
  return failures() == 0 ? status : 1;
}
