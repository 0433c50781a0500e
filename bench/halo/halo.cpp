// The halo exchange of a three-dimensional array of doubles in GPU memory with all 26 neighbours, by datatypes (nonblocking messages, and
// MPI_Neighbor_alltoallw), beside packing by hand: a kernel into one buffer and back, whose parts travel as contiguous GPU memory
// with Crosslane, or through pinned memory with plain MPI. All columns in one process and one run, in turns, and verified.
//   bench_halo [--sizes N,...] [--gpus N] [--runs N] [--milliseconds N] [--csv FILE]
// N cells are the edge of a rank's cube. Any number of ranks; the grid of them is periodic.
#include "common/device.h"
#include "common/edge_table.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "halo/neighbours.h"
#include "kernels/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

enum Column : std::size_t { datatypes, collective, packed, staged, columns };
constexpr std::array<std::string_view, columns> titles{"Crosslane", "Crosslane, collective", "Crosslane, packed",
                                                       "by hand"};

/// A rank's array and packed buffers.
struct Memory {
  explicit Memory(const Neighbours& to)
      : host(to.cells()),
        array(host.size() * sizeof(double)),
        sends(to.bytes()),
        receives(to.bytes()),
        pinned_sends(to.bytes()),
        pinned_receives(to.bytes()) {}
  std::vector<double> host;
  DeviceBuffer array, sends, receives;
  PinnedBuffer pinned_sends, pinned_receives;
};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : table_(options, world,
               {.benchmark = "halo",
                .operation = "an exchange",
                .columns = {titles.begin(), titles.end()},
                .shape = "grid",
                .remark = no_kernels().empty() ? "" : "the host packs, " + no_kernels()}) {
    if (!no_kernels().empty()) return;
    module_ = std::make_unique<Module>(halo_image());
    pack_ = module_->function("crosslane_bench_halo_pack");
    unpack_ = module_->function("crosslane_bench_halo_unpack");
  }

  void measure(int edge) {
    const Neighbours neighbours(edge);
    Memory memory(neighbours);
    const auto& grid = neighbours.grid();
    table_.measure(
        edge, neighbours.bytes(), fmt::format("{}x{}x{}", grid[0], grid[1], grid[2]),
        [&](std::size_t column) { exchange(neighbours, memory, static_cast<Column>(column)); },
        [&](std::size_t column) { verify(neighbours, memory, static_cast<Column>(column)); });
  }

 private:
  void exchange(const Neighbours& with, Memory& memory, Column column) const {
    if (column == datatypes) {
      void* const array = memory.array.pointer();
      messages(
          bound_, with, [&](int) { return array; }, [&](int) { return array; },
          [&](int d) { return std::pair(1, with.sent[place(d)]); },
          [&](int d) { return std::pair(1, with.received[place(d)]); });
    } else if (column == collective) {
      std::array<int, directions> ones{};
      ones.fill(1);
      const std::array<MPI_Aint, directions> zeros{};
      MPI_Neighbor_alltoallw(memory.array.pointer(), ones.data(), zeros.data(), with.sent.data(),
                             memory.array.pointer(), ones.data(), zeros.data(), with.received.data(),
                             with.communicator());
    } else {
      by_hand(with, memory, column);
    }
  }

  void by_hand(const Neighbours& with, Memory& memory, Column column) const {
    const bool on_gpu = column == packed;
    run(pack_, with.send, memory, true);
    if (!on_gpu)
      check(cuMemcpyDtoHAsync(memory.pinned_sends.data(), memory.sends.address(), with.bytes(), device_.stream()),
            "cuMemcpyDtoHAsync");
    device_.wait();
    auto* const from = on_gpu ? static_cast<std::byte*>(memory.sends.pointer()) : memory.pinned_sends.data();
    auto* const into = on_gpu ? static_cast<std::byte*>(memory.receives.pointer()) : memory.pinned_receives.data();
    const auto part = [](const HaloParts& parts, int d) {
      const auto& box = parts.box[d];
      return std::pair(static_cast<int>(box.size[0] * box.size[1] * box.size[2]), MPI_DOUBLE);
    };
    messages(
        on_gpu ? bound_ : plain_, with, [&](int d) { return from + with.send.box[d].at * sizeof(double); },
        [&](int d) { return into + with.receive.box[d].at * sizeof(double); },
        [&](int d) { return part(with.send, d); }, [&](int d) { return part(with.receive, d); });
    if (!on_gpu)
      check(cuMemcpyHtoDAsync(memory.receives.address(), memory.pinned_receives.data(), with.bytes(), device_.stream()),
            "cuMemcpyHtoDAsync");
    run(unpack_, with.receive, memory, false);
    device_.wait();
  }

  /// All 52 messages at once; the tag is the direction. The functions give a direction's buffers, and counts with datatypes.
  template <class From, class Into, class Sent, class Received>
  static void messages(const Calls& mpi, const Neighbours& with, From from, Into into, Sent sent, Received received) {
    std::array<MPI_Request, std::size_t{2} * directions> requests{};
    for (int d = 0; d < directions; ++d) {
      const auto [count, type] = received(d);
      mpi.irecv(into(d), count, type, with.from[place(d)], d, MPI_COMM_WORLD, &requests[place(d)]);
    }
    for (int d = 0; d < directions; ++d) {
      const auto [count, type] = sent(d);
      mpi.isend(from(d), count, type, with.to[place(d)], d, MPI_COMM_WORLD, &requests[place(d) + directions]);
    }
    mpi.waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  static std::size_t place(int direction) { return static_cast<std::size_t>(direction); }

  /// The parts from the array to the packed buffer, or back; the caller waits for the stream.
  void run(CUfunction kernel, const HaloParts& parts, Memory& memory, bool packs) const {
    if (kernel == nullptr) {
      pack_on_host(parts, memory, packs);
      return;
    }
    HaloParts copy = parts;
    CUdeviceptr array = memory.array.address(), buffer = packs ? memory.sends.address() : memory.receives.address();
    std::array<void*, 3> arguments{&copy, &array, &buffer};
    const auto blocks = static_cast<unsigned>(std::min<unsigned long long>((parts.cells + 255) / 256, 1056));
    check(cuLaunchKernel(kernel, blocks, 1, 1, 256, 1, 1, 0, device_.stream(), arguments.data(), nullptr),
          "cuLaunchKernel");
  }

  // What the kernels do, where they cannot run.
  void pack_on_host(const HaloParts& parts, Memory& memory, bool packs) const {
    const auto& buffer = packs ? memory.sends : memory.receives;
    std::vector<double> cells(memory.host.size()), some(parts.cells);
    check(cuMemcpyDtoHAsync(cells.data(), memory.array.address(), memory.array.size(), device_.stream()),
          "cuMemcpyDtoHAsync");
    check(cuMemcpyDtoHAsync(some.data(), buffer.address(), buffer.size(), device_.stream()), "cuMemcpyDtoHAsync");
    device_.wait();
    for (unsigned long long i = 0; i < parts.cells; ++i)
      (packs ? some[i] : cells[cell_of(parts, i)]) = packs ? cells[cell_of(parts, i)] : some[i];
    if (packs)
      check(cuMemcpyHtoD(buffer.address(), some.data(), buffer.size()), "cuMemcpyHtoD");
    else
      check(cuMemcpyHtoD(memory.array.address(), cells.data(), memory.array.size()), "cuMemcpyHtoD");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  /// Behind an exchange every cell, the halo's too, holds its number in the whole grid.
  void verify(const Neighbours& with, Memory& memory, Column column) const {
    for (std::size_t i = 0; i < memory.host.size(); ++i) memory.host[i] = with.inside(i) ? with.expected(i) : -1;
    check(cuMemcpyHtoD(memory.array.address(), memory.host.data(), memory.array.size()), "cuMemcpyHtoD");
    check(cuMemsetD8(memory.receives.address(), 0xff, memory.receives.size()), "cuMemsetD8");
    std::fill_n(memory.pinned_receives.data(), with.bytes(), std::byte{0xff});
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    exchange(with, memory, column);
    check(cuMemcpyDtoH(memory.host.data(), memory.array.address(), memory.array.size()), "cuMemcpyDtoH");
    bool right = true;
    for (std::size_t i = 0; i < memory.host.size() && right; ++i) right = memory.host[i] == with.expected(i);
    demand_everywhere(right, fmt::format("the halo is wrong ({})", titles[column]));
  }

  EdgeTable table_;
  const Device& device_ = table_.device();
  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  std::unique_ptr<Module> module_;
  CUfunction pack_ = nullptr, unpack_ = nullptr;
};

void run(int count, char** words) {
  const Options options(
      count, words,
      {{"--csv", ""}, {"--runs", "5"}, {"--milliseconds", "50"}, {"--gpus", "64"}, {"--sizes", "32,64,128,256"}});
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark benchmark(options, World::find());
  for (const long edge : options.numbers("--sizes")) benchmark.measure(static_cast<int>(edge));
}

}  // namespace

int main(int count, char** words) { return mpi_program("halo", count, words, run); }
