// Windows, attached buffers and split collectives of files in managed memory, which the MPI may have as it is where the CPU shares it
// with the GPUs at any time. It must not know Crosslane.
#include "support/memory.h"
#include "support/plain_mpi.h"
#include "support/program.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t bytes = 10'000;

Memory random_memory(Program& program, int number) {
  Memory memory(MemoryKind::managed, bytes);
  memory.write(pattern(mix(program.seed, program.rank, number), bytes));
  return memory;
}

void attached(Program& program) {
  CROSSLANE_STEP("an attached buffer");
  Memory room(MemoryKind::managed, bytes + MPI_BSEND_OVERHEAD);
  const Memory sent = random_memory(program, 0);
  Memory received(MemoryKind::managed, bytes);
  CROSSLANE_MPI(MPI_Buffer_attach(room.data(), static_cast<int>(room.size())));
  const int right = (program.rank + 1) % program.size, left = (program.rank + program.size - 1) % program.size;
  CROSSLANE_MPI(MPI_Bsend(sent.data(), bytes, MPI_BYTE, right, 0, MPI_COMM_WORLD));
  CROSSLANE_MPI(MPI_Recv(received.data(), bytes, MPI_BYTE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  void* detached = nullptr;
  int size = 0;
  CROSSLANE_MPI(MPI_Buffer_detach(static_cast<void*>(&detached), &size));
  CROSSLANE_CHECK(detached == room.data(), "another buffer was detached");
  CROSSLANE_CHECK(received.read() == pattern(mix(program.seed, left, 0), bytes), "from rank {}", left);
}

void window(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) return;
  CROSSLANE_STEP("a window");
  const int right = (program.rank + 1) % program.size, left = (program.rank + program.size - 1) % program.size;
  Memory exposed(MemoryKind::managed, bytes), got(MemoryKind::managed, bytes);
  exposed.write(std::vector<std::byte>(bytes));
  const Memory put = random_memory(program, 1);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create(exposed.data(), bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Put(put.data(), bytes, MPI_BYTE, right, 0, bytes, MPI_BYTE, window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Get(got.data(), bytes, MPI_BYTE, right, 0, bytes, MPI_BYTE, window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Win_free(&window));
  CROSSLANE_CHECK(exposed.read() == pattern(mix(program.seed, left, 1), bytes), "put by rank {}", left);
  CROSSLANE_CHECK(got.read() == put.read(), "got from rank {}", right);
}

// On an unnamed file of each rank.
void split_file(Program& program) {
  CROSSLANE_STEP("split collectives of files");
  const char* const folder = std::getenv("TMPDIR");
  const std::string path = fmt::format("{}/crosslane-managed-{}", folder == nullptr ? "/tmp" : folder, getpid());
  MPI_File file = MPI_FILE_NULL;
  CROSSLANE_MPI(MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                              MPI_INFO_NULL, &file));
  const Memory written = random_memory(program, 2);
  Memory read(MemoryKind::managed, bytes);
  CROSSLANE_MPI(MPI_File_write_at_all_begin(file, 0, written.data(), bytes, MPI_BYTE));
  CROSSLANE_MPI(MPI_File_write_at_all_end(file, written.data(), MPI_STATUS_IGNORE));
  CROSSLANE_MPI(MPI_File_read_at_all_begin(file, 0, read.data(), bytes, MPI_BYTE));
  CROSSLANE_MPI(MPI_File_read_at_all_end(file, read.data(), MPI_STATUS_IGNORE));
  CROSSLANE_MPI(MPI_File_close(&file));
  CROSSLANE_CHECK(read.read() == written.read(), "the file's contents");
}

bool shared_with_cpu(const Device& device) {
  CUdevice handle = 0;
  int concurrent = 0;
  CROSSLANE_CUDA(cuDeviceGet(&handle, device.ordinal()));
  CROSSLANE_CUDA(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, handle));
  return concurrent != 0;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "managed");
  if (program.device() == nullptr || !shared_with_cpu(*program.device())) {
    fmt::print(stderr, "managed: skipped, the CPU does not share these GPUs' managed memory\n");
    return 77;
  }
  attached(program);
  window(program);
  split_file(program);
  return program.finish();
}
