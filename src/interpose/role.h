// What a rank does in a collective call, told from the call's arguments: the shape that is equal on all ranks, and this rank's
// buffers. It must not know teams, nor how the call is carried out.
#pragma once

#include "collective/shape.h"
#include "interpose/lifted.h"
#include "interpose/process.h"

#include <cstddef>
#include <memory>
#include <optional>

namespace crosslane::interpose {

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

struct Role {
  collective::Shape shape;
  std::optional<Part> send, receive;
  /// MPI_IN_PLACE: the data is in the receive buffer, `in_place_offset` bytes from its start ...
  bool in_place = false;
  std::size_t in_place_offset = 0;
  /// ... and has to be saved first where results are written over it that others have not read yet.
  bool saved = false;

  /// What its buffers hold.
  [[nodiscard]] std::size_t bytes() const {
    return (send ? send->extent.bytes() : 0) + (receive ? receive->extent.bytes() : 0);
  }
};

/// One rank of so many.
struct Seat {
  int members, me;
};

/// `byte` is the layout of one. Nothing where no algorithm takes such a call, on any rank: the application's own operations, nothing
/// to send. Throws Error where MPI does not take an argument for what it should be.
[[nodiscard]] std::optional<Role> role_of(Process& process, const CollectiveCall& call, Seat seat,
                                          const std::shared_ptr<const layout::Layout>& byte);

}  // namespace crosslane::interpose
