// What a rank does in a collective call, told from the call's arguments: the shape that is equal on all ranks, and this rank's
// buffers. It must not know teams, nor how the call is carried out.
#pragma once

#include "collective/plan.h"
#include "interpose/elements.h"
#include "interpose/lifted.h"
#include "interpose/process.h"
#include "team/neighbourhood.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace crosslane::interpose {

/// The counts and displacements of a call with a block for each rank, and types where each has its own: of the plain form or the large
/// one, as the caller has them.
class BlockArrays {
 public:
  BlockArrays() = default;
  /// So many for each, one block behind the other.
  explicit BlockArrays(MPI_Count each) : each_(each) {}
  BlockArrays(const int counts[], const int displacements[] = nullptr)
      : counts_(counts), displacements_(displacements) {}
  BlockArrays(const MPI_Count counts[], const MPI_Aint displacements[] = nullptr)
      : wide_counts_(counts), wide_displacements_(displacements) {}
  BlockArrays(const int counts[], const int displacements[], const MPI_Datatype types[])
      : counts_(counts), displacements_(displacements), types_(types) {}
  BlockArrays(const MPI_Count counts[], const MPI_Aint displacements[], const MPI_Datatype types[])
      : wide_counts_(counts), wide_displacements_(displacements), types_(types) {}
  BlockArrays(const int counts[], const MPI_Aint displacements[], const MPI_Datatype types[])
      : counts_(counts), wide_displacements_(displacements), types_(types) {}
  [[nodiscard]] MPI_Count count(std::size_t block) const {
    if (wide_counts_ != nullptr) return wide_counts_[block];
    return counts_ != nullptr ? counts_[block] : each_;
  }
  [[nodiscard]] bool has_counts() const noexcept { return counts_ != nullptr || wide_counts_ != nullptr; }
  [[nodiscard]] bool has_displacements() const noexcept {
    return displacements_ != nullptr || wide_displacements_ != nullptr;
  }
  [[nodiscard]] bool typed() const noexcept { return types_ != nullptr; }
  /// Where typed().
  [[nodiscard]] MPI_Datatype type(std::size_t block) const { return types_[block]; }
  /// In extents of the type; in bytes where typed().
  [[nodiscard]] MPI_Aint displacement(std::size_t block) const {
    if (wide_displacements_ != nullptr) return wide_displacements_[block];
    return displacements_ != nullptr ? displacements_[block] : static_cast<MPI_Aint>(block) * each_;
  }

 private:
  MPI_Count each_ = 0;
  const int* counts_ = nullptr;
  const int* displacements_ = nullptr;
  const MPI_Count* wide_counts_ = nullptr;
  const MPI_Aint* wide_displacements_ = nullptr;
  const MPI_Datatype* types_ = nullptr;
};

/// The arguments of one call. Those that a procedure does not have stay as they are; counts and types are those of the side that is
/// significant on this rank.
struct CollectiveCall {
  const char* call;
  collective::Collective collective;
  const void* send = nullptr;
  MPI_Count send_count = 0;
  MPI_Datatype send_type{};
  void* receive = nullptr;
  MPI_Count receive_count = 0;
  MPI_Datatype receive_type{};
  BlockArrays send_blocks{}, receive_blocks{};  ///< In place of a count, where each block has its own.
  /// Of a call among neighbours: then blocks are of edges, and shapes those of an all-to-all-v.
  team::EdgeCall edges{};
  MPI_Op op{};
  int root = 0;
  MPI_Comm comm{};
};

/// A buffer of a call as this rank sees it.
struct Part {
  const char* argument;
  const void* base = nullptr;
  Extent extent;
};

/// What a buffer has for one rank, or from it, where blocks may differ. Several for one rank, along edges, come one after another, and lie
/// one behind the other: in a copy always, in the buffer where that is used as it is.
struct PartBlock {
  int member;
  std::int64_t first;  ///< Where it lies, in bytes from the first one that the whole part touches.
  std::size_t packed;  ///< Where it is in a copy, which has no gaps.
  std::size_t bytes;
};

struct Role {
  collective::Shape shape;
  std::optional<Part> send, receive;
  /// MPI_IN_PLACE: the data is in the receive buffer, `in_place_offset` bytes from its start ...
  bool in_place = false;
  std::size_t in_place_offset = 0;
  /// Of collectives whose blocks may differ: those that are not empty. Nothing sent where it is in place: then it is where it would be
  /// received.
  std::vector<PartBlock> sent, received;
  /// Along edges: the MPI can still be asked which is which where there are several between two ranks.
  bool edges_askable = false;

  /// ... which has to be saved first where results are written over it that others have not read yet.
  [[nodiscard]] bool is_saved() const noexcept {
    using collective::Collective;
    return in_place && (shape.collective == Collective::reduce_scatter_block ||
                        shape.collective == Collective::reduce_scatter || shape.collective == Collective::alltoall);
  }

  /// What its buffers hold.
  [[nodiscard]] std::size_t bytes() const {
    return (send ? send->extent.bytes() : 0) + (receive ? receive->extent.bytes() : 0);
  }
};

/// One rank of so many.
struct Seat {
  int members, me;
};

/// Where the blocks of a role lie, of which blocks may differ: in the buffers themselves, or in copies of them.
[[nodiscard]] collective::Pieces pieces_of(const Role& role, Seat seat, bool sends_itself, bool receives_itself);

/// How kernels combine elements of that type; nothing where they do not: see combining_of(), and elements of Fortran's may have another size.
[[nodiscard]] std::optional<Combining> combining_in(Process& process, MPI_Datatype type, MPI_Op op);

/// `byte` is the layout of one. Nothing where no algorithm takes such a call, on any rank: the application's own operations, nothing
/// to send. `topology`: of the communicator, may be null. Throws Error where MPI does not take an argument for what it should be.
[[nodiscard]] std::optional<Role> role_of(Process& process, const CollectiveCall& call, Seat seat,
                                          const std::shared_ptr<const layout::Layout>& byte,
                                          const team::Neighbourhood* topology = nullptr);

}  // namespace crosslane::interpose
