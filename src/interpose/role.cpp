// See role.h.
#include "interpose/role.h"

#include "interpose/elements.h"
#include "kernel/launch.h"

#include <memory>

namespace crosslane::interpose {
namespace {

using collective::Collective;

class Description {
 public:
  Description(Process& process, const CollectiveCall& call, Seat seat,
              const std::shared_ptr<const layout::Layout>& byte)
      : process_(process),
        call_(call),
        members_(seat.members),
        me_(seat.me),
        byte_(byte),
        in_place_(call.send == mpi::in_place()) {}

  [[nodiscard]] std::optional<Role> role() {
    Role role;
    role.shape.collective = call_.collective;
    role.shape.root = call_.root;
    if (call_.root < 0 || call_.root >= members_) return std::nullopt;
    const bool known = combines(call_.collective) ? describe_combining(role) : describe_moving(role);
    if (!known || role.shape.bytes == 0) return std::nullopt;
    return role;
  }

 private:
  [[nodiscard]] bool at_root() const noexcept { return me_ == call_.root; }
  [[nodiscard]] auto members() const noexcept { return static_cast<std::size_t>(members_); }
  [[nodiscard]] auto me() const noexcept { return static_cast<std::size_t>(me_); }

  [[nodiscard]] Extent bytes(std::size_t count) const { return Extent::of_bytes(byte_, count); }

  // Elements lie in memory as the kernels see them, with their padding.
  bool describe_combining(Role& role) {
    const auto& handles = process_.library().handles();
    const auto element = element_of(handles, call_.receive_type);
    const auto op = op_of(handles, call_.op);
    if (!element || !op || !kernel::Kernels::combines(*op, *element) || call_.receive_count <= 0) return false;
    role.shape.element = *element;
    role.shape.op = *op;
    role.shape.bytes = static_cast<std::size_t>(call_.receive_count) * kernel::bytes_of(*element);
    const bool scatters = call_.collective == Collective::reduce_scatter_block;
    // The receive buffers of who gets no result are not significant, and may be anything.
    const bool wants = call_.collective == Collective::reduce   ? at_root()
                       : call_.collective == Collective::exscan ? me() > 0 || in_place_
                                                                : true;
    if (in_place_ && !wants) return false;
    const std::size_t whole = role.shape.bytes * (scatters ? members() : 1);
    role.in_place = in_place_;
    role.saved = in_place_ && scatters;
    if (!in_place_) role.send = Part{"sendbuf", call_.send, bytes(whole)};
    if (wants) role.receive = Part{"recvbuf", call_.receive, bytes(in_place_ ? whole : role.shape.bytes)};
    return true;
  }

  bool describe_moving(Role& role) {
    switch (call_.collective) {
      case Collective::broadcast:
        role.receive = part("buffer", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        role.in_place = at_root();
        return role.receive.has_value();
      case Collective::gather:
        if (!in_place_) role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, role.shape.bytes);
        if (at_root()) role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        role.in_place = in_place_;
        role.in_place_offset = me() * role.shape.bytes;
        return (in_place_ ? at_root() : role.send.has_value()) && (!at_root() || role.receive);
      case Collective::scatter:
        if (at_root()) role.send = blocks("sendbuf", call_.send, call_.send_count, call_.send_type, role);
        if (call_.receive != mpi::in_place())
          role.receive = part("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        return (!at_root() || role.send) && (role.receive || call_.receive == mpi::in_place());
      case Collective::allgather:
      case Collective::alltoall:
        role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        if (!role.receive) return false;
        role.in_place = in_place_;
        if (call_.collective == Collective::alltoall) {
          role.saved = in_place_;
          if (!in_place_) role.send = blocks("sendbuf", call_.send, call_.send_count, call_.send_type, role);
        } else {
          role.in_place_offset = me() * role.shape.bytes;
          std::size_t bytes = 0;
          if (!in_place_) role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, bytes);
        }
        return in_place_ || role.send;
      default:
        return false;
    }
  }

  std::optional<Part> part(const char* argument, const void* base, MPI_Count count, MPI_Datatype type,
                           std::size_t& bytes) {
    if (count <= 0) return std::nullopt;
    Part part{argument, base, {process_.layouts().of(type), count}};
    bytes = part.extent.bytes();
    if (bytes == 0) return std::nullopt;
    return part;
  }

  // One block a member, one after another as the type's extent says.
  std::optional<Part> blocks(const char* argument, const void* base, MPI_Count count, MPI_Datatype type, Role& role) {
    auto all = part(argument, base, count, type, role.shape.bytes);
    if (all) all->extent.count *= members_;
    return all;
  }

  Process& process_;
  const CollectiveCall& call_;
  int members_, me_;
  const std::shared_ptr<const layout::Layout>& byte_;
  bool in_place_;
};

}  // namespace

std::optional<Role> role_of(Process& process, const CollectiveCall& call, Seat seat,
                            const std::shared_ptr<const layout::Layout>& byte) {
  return Description(process, call, seat, byte).role();
}

}  // namespace crosslane::interpose
