// The transposition of a three-dimensional array of complex numbers in GPU memory, of which ranks have slabs: as libraries for Fourier
// transforms do it, by MPI_Alltoallw with sub-array datatypes, beside copies into a packed buffer with MPI_Alltoallv, and beside the same
// call of plain MPI on copies in pinned memory. All columns in one process and one run, in turns, and verified.
//   bench_transpose [--sizes N,...] [--gpus N] [--runs N] [--milliseconds N] [--csv FILE]
// N is the edge of the whole array, [N][N][N]: each rank has some planes of the first dimension, then of the second.
#include "common/device.h"
#include "common/edge_table.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;
using Cell = std::complex<double>;

enum Column : std::size_t { datatypes, packed, staged, columns };
constexpr std::array<std::string_view, columns> titles{"Crosslane", "Crosslane, packed", "by hand"};

/// What a rank has of so many planes.
struct Share {
  Share(int planes, int ranks, int rank)
      : first(static_cast<int>(std::int64_t{planes} * rank / ranks)),
        count(static_cast<int>(std::int64_t{planes} * (rank + 1) / ranks) - first) {}
  int first, count;
};

/// Which blocks go where: before, this rank has [mine][N][N], afterwards [N][mine][N].
class Blocks {
 public:
  Blocks(int edge, const World& world) : mine(edge, world.ranks, world.rank), edge_(edge) {
    for (int rank = 0; rank < world.ranks; ++rank) {
      const Share& their = shares.emplace_back(edge, world.ranks, rank);
      add(sent, {mine.count, edge, edge}, {mine.count, their.count, edge}, {0, their.first, 0});
      add(received, {edge, mine.count, edge}, {their.count, mine.count, edge}, {their.first, 0, 0});
      sent_counts.push_back(mine.count * their.count * edge);
      sent_places.push_back(mine.count * their.first * edge);
      received_places.push_back(their.first * mine.count * edge);
    }
    for (const int count : sent_counts) ones.push_back(count == 0 ? 0 : 1);
    zeros.assign(shares.size(), 0);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    for (auto* const types : {&sent, &received})
      for (MPI_Datatype& type : *types) MPI_Type_free(&type);
  }

  const Share mine;
  std::vector<Share> shares;
  std::vector<MPI_Datatype> sent, received;
  std::vector<int> ones, zeros, sent_counts, sent_places, received_places;

  [[nodiscard]] std::size_t cells() const {
    return static_cast<std::size_t>(mine.count) * static_cast<std::size_t>(edge_) * static_cast<std::size_t>(edge_);
  }
  [[nodiscard]] std::size_t bytes() const { return cells() * sizeof(Cell); }
  /// Cells before the transposition, and after it: their numbers in the whole array.
  [[nodiscard]] std::vector<Cell> before() const { return numbered(mine.count, edge_, mine.first, 0); }
  [[nodiscard]] std::vector<Cell> after() const { return numbered(edge_, mine.count, 0, mine.first); }

 private:
  static void add(std::vector<MPI_Datatype>& types, std::array<int, 3> whole, std::array<int, 3> part,
                  std::array<int, 3> at) {
    MPI_Datatype& type = types.emplace_back(MPI_DATATYPE_NULL);
    if (std::ranges::find(part, 0) != part.end())
      MPI_Type_contiguous(1, MPI_C_DOUBLE_COMPLEX, &type);  // of a block that is empty
    else
      MPI_Type_create_subarray(3, whole.data(), part.data(), at.data(), MPI_ORDER_C, MPI_C_DOUBLE_COMPLEX, &type);
    MPI_Type_commit(&type);
  }
  [[nodiscard]] std::vector<Cell> numbered(int planes, int rows, int first_plane, int first_row) const {
    std::vector<Cell> result;
    for (int i = 0; i < planes; ++i)
      for (int j = 0; j < rows; ++j)
        for (int k = 0; k < edge_; ++k)
          result.emplace_back((static_cast<double>(first_plane + i) * edge_ + first_row + j) * edge_ + k, -k);
    return result;
  }

  const int edge_;
};

/// A rank's arrays, on its GPU and in pinned memory.
struct Memory {
  explicit Memory(std::size_t bytes) : from(bytes), to(bytes), buffer(bytes), pinned_from(bytes), pinned_to(bytes) {}
  DeviceBuffer from, to, buffer;
  PinnedBuffer pinned_from, pinned_to;
};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : world_(world),
        table_(options, world,
               {.benchmark = "transpose",
                .operation = "a transposition",
                .columns = {titles.begin(), titles.end()},
                .shape = "",
                .remark = ""}) {}

  void measure(int edge) {
    const Blocks blocks(edge, world_);
    Memory memory(std::max(blocks.bytes(), sizeof(Cell)));
    table_.measure(
        edge, blocks.bytes(), "", [&](std::size_t column) { transpose(blocks, memory, static_cast<Column>(column)); },
        [&](std::size_t column) { verify(blocks, memory, static_cast<Column>(column)); });
  }

 private:
  void transpose(const Blocks& blocks, Memory& memory, Column column) const {
    const auto by_types = [&](auto alltoallw, const void* from, void* to) {
      alltoallw(from, blocks.ones.data(), blocks.zeros.data(), blocks.sent.data(), to, blocks.ones.data(),
                blocks.zeros.data(), blocks.received.data(), MPI_COMM_WORLD);
    };
    if (column == datatypes) {
      by_types(MPI_Alltoallw, memory.from.pointer(), memory.to.pointer());
    } else if (column == packed) {
      pack(blocks, memory);
      MPI_Alltoallv(memory.buffer.pointer(), blocks.sent_counts.data(), blocks.sent_places.data(), MPI_C_DOUBLE_COMPLEX,
                    memory.to.pointer(), blocks.sent_counts.data(), blocks.received_places.data(), MPI_C_DOUBLE_COMPLEX,
                    MPI_COMM_WORLD);
    } else {
      check(cuMemcpyDtoHAsync(memory.pinned_from.data(), memory.from.address(), blocks.bytes(), device_.stream()),
            "cuMemcpyDtoHAsync");
      device_.wait();
      by_types(plain_.alltoallw, memory.pinned_from.data(), memory.pinned_to.data());
      check(cuMemcpyHtoDAsync(memory.to.address(), memory.pinned_to.data(), blocks.bytes(), device_.stream()),
            "cuMemcpyHtoDAsync");
      device_.wait();
    }
  }

  /// What is sent to a rank: as many rows as this rank has planes.
  void pack(const Blocks& blocks, Memory& memory) const {
    for (std::size_t rank = 0; rank < blocks.shares.size(); ++rank) {
      if (blocks.sent_counts[rank] == 0) continue;
      const Share& their = blocks.shares[rank];
      const std::size_t row = static_cast<std::size_t>(blocks.sent_counts[rank] / blocks.mine.count) * sizeof(Cell);
      CUDA_MEMCPY2D copy{};
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.srcPitch = blocks.bytes() / static_cast<std::size_t>(blocks.mine.count);
      copy.srcDevice =
          memory.from.address() + row / static_cast<std::size_t>(their.count) * static_cast<std::size_t>(their.first);
      copy.dstDevice = memory.buffer.address() + static_cast<std::size_t>(blocks.sent_places[rank]) * sizeof(Cell);
      copy.dstPitch = copy.WidthInBytes = row;
      copy.Height = static_cast<std::size_t>(blocks.mine.count);
      check(cuMemcpy2DAsync(&copy, device_.stream()), "cuMemcpy2DAsync");
    }
    device_.wait();
  }

  void verify(const Blocks& blocks, Memory& memory, Column column) const {
    const auto before = blocks.before(), after = blocks.after();
    if (!before.empty()) check(cuMemcpyHtoD(memory.from.address(), before.data(), blocks.bytes()), "cuMemcpyHtoD");
    check(cuMemsetD8(memory.to.address(), 0xff, memory.to.size()), "cuMemsetD8");
    check(cuMemsetD8(memory.buffer.address(), 0xff, memory.buffer.size()), "cuMemsetD8");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    transpose(blocks, memory, column);
    std::vector<Cell> got(after.size());
    if (!got.empty()) check(cuMemcpyDtoH(got.data(), memory.to.address(), blocks.bytes()), "cuMemcpyDtoH");
    demand_everywhere(got == after, fmt::format("the transposition is wrong ({})", titles[column]));
  }

  const World world_;
  EdgeTable table_;
  const Device& device_ = table_.device();
  const Calls plain_ = Calls::plain();
};

void run(int count, char** words) {
  const Options options(
      count, words,
      {{"--csv", ""}, {"--runs", "5"}, {"--milliseconds", "50"}, {"--gpus", "64"}, {"--sizes", "32,64,128,256,512"}});
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  Benchmark benchmark(options, World::find());
  for (const long edge : options.numbers("--sizes")) benchmark.measure(static_cast<int>(edge));
}

}  // namespace

int main(int count, char** words) { return mpi_program("transpose", count, words, run); }
