// What Crosslane adds to a program's start: loading it, and MPI_Init. One start is one measurement; startup.py takes
// them with and without Crosslane in turns. `startup --preload LIBRARY` starts itself again with the library. It looks
// as well for what must not be there after MPI_Init and host-only calls: a driver, open GPU devices, a CUDA context.
#include "common/late_driver.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr const char* began = "BENCH_STARTUP_BEGAN_NS";  // set by the first start for the second

/// Starts this program again with `library` preloaded, or with nothing.
[[noreturn]] void start_again(const std::string& library, char** words) {
  if (library == "none")
    unsetenv("LD_PRELOAD");
  else
    setenv("LD_PRELOAD", library.c_str(), 1);
  setenv(began, std::to_string(now_ns()).c_str(), 1);
  execv("/proc/self/exe", words);
  throw std::runtime_error(fmt::format("cannot start again: {}", std::strerror(errno)));
}

/// Open files whose name begins with /dev/nvidia.
int open_gpu_devices() {
  int open = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's own descriptor is among them
    open += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/dev/nvidia") ? 1 : 0;
  }
  return open;
}

/// A few calls on host memory, between the ranks.
void host_calls() {
  std::array<double, 512> send{};
  std::array<double, 512> receive{};
  std::vector<double> heap(std::size_t{1} << 20);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Sendrecv(send.data(), 512, MPI_DOUBLE, (rank + 1) % ranks, 0, receive.data(), 512, MPI_DOUBLE,
               (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(send.data(), receive.data(), 512, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Bcast(heap.data(), static_cast<int>(heap.size()), MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

int run(int count, char** words) {
  const auto main_ns = now_ns();
  const Options options(count, words,
                        {{"--preload", "none"}, {"--driver", ""}, {"--csv", ""}, {"--side", "plain"}, {"--run", "1"}});
  const char* const begun = std::getenv(began);
  if (begun == nullptr) start_again(options.text("--preload"), words);
  const auto load_ns = main_ns - std::strtoll(begun, nullptr, 10);
  unsetenv(began);

  std::unique_ptr<LateDriver> driver;
  if (const auto& library = options.text("--driver"); !library.empty()) driver = std::make_unique<LateDriver>(library);
  const auto contexts = [&] { return driver == nullptr ? 0 : driver->contexts(); };
  const auto before = now_ns();
  MPI_Init(nullptr, nullptr);
  const auto init_ns = now_ns() - before;
  const int after_init = contexts();
  host_calls();

  // Of all ranks: the slowest start, the most of what should not be.
  std::array<double, 2> ms{static_cast<double>(load_ns) / 1e6, static_cast<double>(init_ns) / 1e6};
  std::array<int, 5> found{preloaded() ? 1 : 0, dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) != nullptr ? 1 : 0,
                           open_gpu_devices(), after_init, contexts()};
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(MPI_IN_PLACE, ms.data(), 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, found.data(), 5, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    Csv csv(options.text("--csv"), {"startup", driver == nullptr ? "none" : driver->description()},
            {"side", "run", "load_ms", "init_ms", "driver_loaded", "gpu_devices_open", "contexts_after_init",
             "contexts_after_calls"});
    csv.row({options.text("--side"), options.text("--run"), fmt::format("{:.3f}", ms[0]), fmt::format("{:.3f}", ms[1]),
             std::to_string(found[1]), std::to_string(found[2]), std::to_string(found[3]), std::to_string(found[4])});
    fmt::print(
        stdout,
        R"({{"load_ms": {:.3f}, "init_ms": {:.3f}, "preloaded": {}, "driver_loaded": {}, "gpu_devices_open": {}, )",
        ms[0], ms[1], found[0], found[1], found[2]);
    fmt::print(stdout, R"("contexts_after_init": {}, "contexts_after_calls": {}, "mpi": "{}"}})", found[3], found[4],
               mpi_version());
    fmt::print(stdout, "\n");
  }
  MPI_Finalize();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "startup: {}\n", error.what());
    return 2;
  }
}
