// A program without a GPU, as most that run under a preloaded Crosslane: results are right, and no driver is loaded.
// --driver <file>: that driver library is loaded before MPI_Init, as by a program that could use a GPU but does not; it
// ends the process when more is asked of it than whether a pointer is its own. It must not know CUDA or Crosslane.
#include <dlfcn.h>
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

int wrong = 0;

void check(bool right, const char* what) {
  if (right) return;
  ++wrong;
  static_cast<void>(std::fprintf(stderr, "lifecycle_host FAILED: %s\n", what));
}

bool driver_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libcuda.so") != std::string::npos) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_driver = argc == 3 && std::string(argv[1]) == "--driver";
  if (has_driver && dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    static_cast<void>(std::fprintf(stderr, "%s\n", dlerror()));
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  for (const int count : {0, 1, 1000, 300000}) {
    const auto length = static_cast<std::size_t>(count);
    std::vector<int> out(length, rank + 1), in(length, 0), sums(length, 0);
    MPI_Request requests[2];
    MPI_Irecv(in.data(), count, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out.data(), count, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(in == std::vector<int>(length, left + 1), "a message");
    MPI_Allreduce(out.data(), sums.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sums == std::vector<int>(length, size * (size + 1) / 2), "a reduction");
    MPI_Bcast(out.data(), count, MPI_INT, size - 1, MPI_COMM_WORLD);
    check(out == std::vector<int>(length, size), "a broadcast");
  }
  for (const int start : {0, 1, 2}) {
    std::vector<int> out(1000, rank + start), in(1000, -1);
    MPI_Request requests[2];
    MPI_Recv_init(in.data(), 1000, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out.data(), 1000, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(in == std::vector<int>(1000, left + start), "a persistent message");
    for (auto& request : requests) MPI_Request_free(&request);
  }
  if (has_driver) {
    void* const queries = dlsym(RTLD_DEFAULT, "crosslane_test_pointer_queries");
    check(queries != nullptr && reinterpret_cast<int (*)()>(queries)() > 0,
          "the driver was never asked about a pointer");
  }
  check(driver_loaded() == has_driver, has_driver ? "no driver is loaded" : "a CUDA driver was loaded");
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
