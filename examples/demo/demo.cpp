// The demo: MPI's point-to-point, collective, neighbourhood and packing procedures on GPU memory, each verified against
// what the ranks are known to have sent. An ordinary MPI program: without Crosslane a packaged MPI crashes on it.
#include "demo.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace {

/// "Open MPI 4.1.4" or "MPICH 4.0.2", from the library's own, longer words.
std::string short_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  // "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\n..."
  char number[32] = "";
  if (std::sscanf(text, "Open MPI v%31[0-9a-z.]", number) == 1) return std::string("Open MPI ") + number;
  if (std::sscanf(text, "MPICH Version: %31[0-9a-z.]", number) == 1) return std::string("MPICH ") + number;
  return std::string(text, std::strcspn(text, "\n"));
}

bool emulated() {
  char name[128] = "";
  CUdevice device = 0;
  demo::check(cuDeviceGet(&device, 0), "cuDeviceGet");
  demo::check(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  return std::strstr(name, "mulated") != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  demo::World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  const int gpus = demo::choose_gpu(world.rank);

  std::vector<demo::Check> checks;
  demo::add_point_to_point(checks, world);
  demo::add_collectives(checks, world);
  demo::add_neighbourhoods(checks, world);
  demo::add_local(checks, world);

  int verified = 0;
  int failed = 0;
  for (const auto& check : checks) {
    const int mine = check.right() ? 0 : 1;
    int wrong = 0;
    MPI_Allreduce(&mine, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    verified += wrong == 0 ? 1 : 0;
    failed += wrong == 0 ? 0 : 1;
    if (world.rank == 0) std::printf("%-32s %s\n", check.procedure.c_str(), wrong == 0 ? "verified" : "WRONG");
  }
  if (world.rank == 0) {
    if (failed != 0)
      std::printf("demo: %d procedures gave wrong results\n", failed);
    else
      std::printf("demo: verified %d MPI procedures on %d ranks, %d %sGPUs, %s\n", verified, world.size, gpus,
                  emulated() ? "emulated " : "", short_version().c_str());
    std::fflush(stdout);
  }
  checks.clear();  // with them goes the communicator of the ring
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}
