// Collectives of one communicator, each rank with buffers of its own kind, against what they must give in rank order; and by which
// algorithm each went. It must not know why.
#pragma once

#include "collectives/entry_points.h"
#include "direct/buffer.h"
#include "direct/elements.h"
#include "support/direct_calls.h"
#include "support/program.h"

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {

enum class Kind {
  allreduce,
  reduce,
  broadcast,
  allgather,
  reduce_scatter_block,
  alltoall,
  gather,
  scatter,
  scan,
  exscan
};
inline constexpr std::array<std::string_view, 10> kind_names{
    "allreduce", "reduce", "broadcast", "allgather", "reduce_scatter_block",
    "alltoall",  "gather", "scatter",   "scan",      "exscan"};

/// True if this one combines elements.
[[nodiscard]] constexpr bool combining(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter_block || kind == Kind::scan ||
         kind == Kind::exscan;
}
/// True if some rank has a block for, or from, each rank.
[[nodiscard]] constexpr bool in_blocks(Kind kind) {
  return kind == Kind::allgather || kind == Kind::gather || kind == Kind::scatter || kind == Kind::alltoall ||
         kind == Kind::reduce_scatter_block;
}

/// One call, the same on all ranks.
struct Case {
  Kind kind = Kind::allreduce;
  const Element* element = nullptr;
  MPI_Op op = MPI_OP_NULL;
  std::string op_name;
  std::size_t units = 0;  ///< Elements of a block.
  int root = 0;
  bool in_place = false;
  bool whole = false;  ///< Of numbers for which it does not show who combines them, and in which order.
  int repeats = 1;     ///< Times with the same buffers.
  std::uint64_t seed = 0;

  [[nodiscard]] std::size_t bytes() const { return units * element->base.extent; }
  /// Bytes that are sent: gaps are combined with their elements, but not moved.
  [[nodiscard]] std::size_t sent_bytes() const;
  [[nodiscard]] std::string text() const;
};

/// A case that the MPI itself may combine, in another order, or has its own trouble with: `whole`, and what it can do alike.
void leave_to_mpi(Case& what);

/// How a rank makes its buffers.
struct Manners {
  std::function<MemoryKind(Random&)> kind;
  unsigned derived = 0;                 ///< Percent of moves whose buffers have a derived type.
  std::size_t most_derived = SIZE_MAX;  ///< Bytes of the largest block that may have one.
  const Device* other = nullptr;        ///< If there is one, some buffers are on it instead of the rank's GPU.
};

/// GPU memory alone.
[[nodiscard]] Manners on_the_gpu();
/// An all-reduce of ints.
[[nodiscard]] Case sum_of_ints(std::size_t units, std::uint64_t seed, int repeats = 1);

/// As that of a collective by its name.
[[nodiscard]] std::int64_t direct_calls(Kind kind, const char* algorithm = nullptr);

class Job {
 public:
  /// Collective over the communicator.
  Job(const Program& program, MPI_Comm communicator, std::string name);

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int me() const { return me_; }
  [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::vector<int> world_ranks() const;
  /// Whether the ranks share a node, as far as Crosslane is told (--node).
  [[nodiscard]] bool on_one_node() const;
  /// Kernels of two members take turns on a GPU (support/sharing.h).
  [[nodiscard]] bool in_turns() const { return in_turns_; }
  /// Whether such a call on GPU memory goes direct among ranks of one node (docs/collectives.md). --driven 1 says that the settings
  /// prefer an algorithm that the host drives for all all-reduces.
  [[nodiscard]] bool goes_direct(const Case& what) const;

  /// Calls with GPU memory on all ranks, until later ones go direct where they can at all.
  void warm_up() const;

  /// One case under way, with this rank's buffers: nothing where the collective does not look at one.
  struct Run {
    Case what;
    std::optional<Buffer> send, receive;
    std::vector<std::byte> mine, result;
  };
  [[nodiscard]] Run make(const Case& what, const Manners& manners, Random& local) const;
  /// Before each call: what it reads.
  void load(Run& run, Random& local) const;
  /// After it.
  void check(Run& run) const;

  /// What is passed to the procedure: those that it does not have are not significant.
  struct Arguments {
    const void* send;
    int send_count;
    MPI_Datatype send_type;
    void* receive;
    int receive_count;
    MPI_Datatype receive_type;
  };
  [[nodiscard]] Arguments arguments(const Run& run) const;

  /// Calls it, in one of its forms; `request` is written by the others than the blocking one.
  void call(const Run& run, Form form = Form::blocking, MPI_Request* request = nullptr) const;

  /// Runs the case and checks results. `after` is told which repetition (from 0) just ended.
  void run(const Case& what, const Manners& manners, Random& local, const std::function<void(int)>& after = {}) const;

  /// The same by the MPI itself, nonblocking on host memory; must give the same.
  void compare_with_mpi(const Case& what) const;

 private:
  [[nodiscard]] std::vector<std::byte> contribution(const Case& what, int rank) const;
  [[nodiscard]] std::vector<std::byte> combined(const Case& what, int ranks, int block) const;
  [[nodiscard]] std::vector<std::byte> expected(const Case& what) const;

  const Program& program_;
  MPI_Comm communicator_;
  std::string name_;
  int size_ = 1, me_ = 0;
  bool in_turns_ = false;
};

}  // namespace crosslane::tests
