// Neighbourhood: the edges of a communicator's virtual topology as this rank sees them, and which edge out of another rank comes in here
// as which (MPI 4.1, section 9.6). Where a rank has several edges to another, MPIs differ, and one MPI's procedures and their forms do
// (Open MPI 4.1 and MPICH 4.0, in periodic dimensions of one or two ranks): so the MPI itself is asked. It must not know buffers.
#pragma once

#include "mpi/library.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace crosslane::team {

/// The procedures among neighbours: both all-gathers are one, for they send the same along all edges.
enum class NeighbourCall : std::uint8_t { none, gather, alltoall, alltoallv, alltoallw };
enum class CallForm : std::uint8_t { blocking, nonblocking, persistent };

/// What a call does along edges.
struct EdgeCall {
  NeighbourCall procedure = NeighbourCall::none;
  CallForm form = CallForm::blocking;
  /// True where it matters which of several edges between two ranks is which.
  [[nodiscard]] bool tells_edges_apart() const noexcept { return procedure > NeighbourCall::gather; }
};

/// A question to the MPI: the very call whose matching it is to tell, on a few integers in host memory.
class Question {
 public:
  /// `ordinals`: for each outgoing block, how many edges before it go to the same rank. So many blocks come in.
  Question(EdgeCall call, const std::vector<int>& ordinals, std::size_t blocks_in);
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  /// Blocking or nonblocking. Collective over the communicator; throws Error (other) where the MPI refuses. A nonblocking one must live
  /// until it is over.
  void put(const mpi::Functions& mpi, MPI_Comm communicator);
  /// Whether it is answered; never waits. Throws as put(). Any thread: another one that looks at the same time is not waited for.
  [[nodiscard]] bool over(const mpi::Functions& mpi);
  /// The same, known.
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  [[nodiscard]] EdgeCall call() const noexcept { return call_; }
  /// For each incoming block the number that came along its edge; once it is over.
  [[nodiscard]] std::span<const int> answer() const noexcept { return {in_.data(), blocks_in_}; }

 private:
  EdgeCall call_;
  std::size_t blocks_in_;
  std::vector<int> out_, in_, ones_, places_;
  std::vector<MPI_Aint> bytes_;
  std::vector<MPI_Datatype> types_;
  MPI_Request request_{};
  std::mutex looking_;
  std::atomic<bool> over_{false};
};

class Neighbourhood {
 public:
  /// One end of an edge: the rank at the other one, and which of the own blocks goes there or comes from there.
  struct Edge {
    int rank;
    std::size_t block;
  };

  /// Local. Null where the communicator has no virtual topology. Throws Error (other) where the MPI refuses.
  [[nodiscard]] static std::shared_ptr<Neighbourhood> of(const mpi::Functions& mpi, MPI_Comm communicator);
  /// From these ranks and to those, in the order of blocks; `absent` has no edge.
  Neighbourhood(std::span<const int> sources, std::span<const int> destinations, int absent);

  /// False where two outgoing edges of this rank, or two incoming ones, have the same rank at the other end.
  [[nodiscard]] bool single_edges() const noexcept { return single_; }
  /// Outgoing edges by rank, those to one rank in the order of their blocks.
  [[nodiscard]] const std::vector<Edge>& out() const noexcept { return out_; }
  /// Incoming edges by rank, those from one rank in the order of its outgoing ones where matched().
  [[nodiscard]] const std::vector<Edge>& in(EdgeCall call) const noexcept;

  /// Whether the MPI has been asked how such a call matches edges.
  [[nodiscard]] bool asked(EdgeCall call) const noexcept { return known_[place(call)].asked; }
  /// Whether it has told: not where what it answers is no answer (MPICH 4.0's MPI_Neighbor_alltoallw in directed graphs).
  [[nodiscard]] bool matched(EdgeCall call) const noexcept { return known_[place(call)].in.has_value(); }
  /// Asks it, which all ranks of the communicator do at the same place in the order of their collectives; waits for them in a blocking form
  /// alone. The question is null in that; the caller keeps another one until it is over. Throws Error (other) where the MPI refuses.
  std::shared_ptr<Question> ask(const mpi::Functions& mpi, MPI_Comm communicator, EdgeCall call);
  /// Learns what has been answered since, and returns whether all has been; never waits. Throws as ask().
  bool listen(const mpi::Functions& mpi);
  /// Learns an answer.
  void learn(EdgeCall call, std::span<const int> answer);

  /// A bit of its own for each kind of call that tells edges apart.
  [[nodiscard]] static std::uint32_t bit(EdgeCall call) noexcept { return std::uint32_t{1} << place(call); }

 private:
  static constexpr std::size_t procedures = 3, forms = 3;
  [[nodiscard]] static std::size_t place(EdgeCall call) noexcept;
  struct Known {
    bool asked = false;
    std::shared_ptr<Question> question;  // under way
    std::optional<std::vector<Edge>> in;
  };

  std::vector<Edge> in_, out_;
  std::vector<int> ordinals_;
  std::size_t blocks_in_;
  bool single_;
  std::array<Known, procedures * forms> known_;  // of the procedures that tell edges apart
};

}  // namespace crosslane::team
