// What a program leaves for MPI_Finalize: requests that it frees while they are pending complete there, and dynamic windows may be forgotten. And
// Crosslane is found by those who ask. It must not know Crosslane.
#include "support/plain_mpi.h"
#include "support/program.h"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::array<int, 3> sizes{1, 5000, 1 << 20};

struct Pending {
  std::vector<Memory> out, in;
};

// Every message by requests of which no handle is left.
Pending leave_pending(Program& program) {
  Pending pending;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    const int bytes = sizes.at(static_cast<std::size_t>(i));
    CROSSLANE_STEP("freed requests of {} bytes", bytes);
    for (int persistent = 0; persistent < 2; ++persistent) {
      auto& out = pending.out.emplace_back(program.kind(), static_cast<std::size_t>(bytes));
      auto& in = pending.in.emplace_back(program.kind(), static_cast<std::size_t>(bytes));
      out.write(pattern(mix(program.seed, program.rank, pending.out.size()), out.size()));
      in.write(std::vector<std::byte>(in.size()));
      const int tag = 2 * i + persistent;
      const MPI_Comm world = MPI_COMM_WORLD;
      std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      if (persistent != 0) {
        CROSSLANE_MPI(MPI_Recv_init(in.data(), bytes, MPI_BYTE, left, tag, world, requests.data()));
        CROSSLANE_MPI(MPI_Send_init(out.data(), bytes, MPI_BYTE, right, tag, world, &requests[1]));
        CROSSLANE_MPI(MPI_Startall(2, requests.data()));
      } else {
        CROSSLANE_MPI(MPI_Irecv(in.data(), bytes, MPI_BYTE, left, tag, world, requests.data()));
        CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right, tag, world, &requests[1]));
      }
      // The receive last, so that no later call but MPI_Finalize can bring its data.
      for (const auto which : {1, 0}) {
        auto& request = requests.at(static_cast<std::size_t>(which));
        CROSSLANE_MPI(MPI_Request_free(&request));
        CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "a freed request is still there");
      }
    }
  }
  return pending;
}

// Dynamic windows of several communicators, some of which are freed. MPIs end without a word where others are left.
void leave_windows(Program& program, std::vector<Memory>& attached) {
  CROSSLANE_STEP("dynamic windows");
  MPI_Comm reversed = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &reversed));
  for (int number = 0; number < 8; ++number) {
    MPI_Win window = MPI_WIN_NULL;
    CROSSLANE_MPI(
        MPI_Win_create_dynamic(MPI_INFO_NULL, program.shared().chance(50) ? MPI_COMM_WORLD : reversed, &window));
    if (program.shared().chance(30)) {
      polite_barrier();
      CROSSLANE_MPI(MPI_Win_free(&window));
      continue;
    }
    attached.emplace_back(program.kind(), 1000);
    CROSSLANE_MPI(MPI_Win_attach(window, attached.back().data(), 1000));
  }
  polite_barrier();
}

void check_support() {
  void* const symbol = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  CROSSLANE_CHECK(symbol != nullptr, "MPIX_Query_cuda_support is not exported");
  if (symbol != nullptr) CROSSLANE_CHECK_EQUAL(reinterpret_cast<int (*)()>(symbol)(), 1);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "lifecycle_finalize");
  std::unique_ptr<Device> device;  // so that the memory outlives the frame's hold on the GPU
  if (program.device() != nullptr) device = std::make_unique<Device>(program.device()->ordinal());
  if (program.option("support", 0) != 0) check_support();
  Pending pending;
  std::vector<Memory> attached;  // lives as long as the windows
  const int left = (program.rank + program.size - 1) % program.size;
  const auto seed = program.seed;
  const bool windows = plain_mpi_has_windows(MPI_COMM_WORLD);
  const int status = program.finish([&] {
    if (windows) leave_windows(program, attached);
    pending = leave_pending(program);
  });
  const Watchdog watchdog(60);
  CROSSLANE_STEP("after MPI_Finalize");
  for (std::size_t i = 0; i < pending.in.size(); ++i)
    CROSSLANE_CHECK(pending.in[i].read() == pattern(mix(seed, left, i + 1), pending.in[i].size()), "message {}", i);
  return failures() == 0 ? status : 1;
}
