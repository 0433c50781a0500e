// See role.h.
#include "interpose/role.h"

#include "base/error.h"
#include "interpose/elements.h"
#include "kernel/catalogue.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

namespace crosslane::interpose {
namespace {

using base::Error;
using base::ErrorClass;
using collective::Collective;

// Extents are signed. `things`: what there are so many of.
std::size_t bytes_in_all(MPI_Count count, std::size_t each, const char* things) {
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes))
    throw Error(ErrorClass::count, "{} {} of {} bytes are more than 63 bits count; check the count", count, things,
                each);
  return static_cast<std::size_t>(bytes);
}

// To what was summed up so.
void add_bytes(std::size_t& total, std::size_t bytes) {
  total += bytes;
  if (total > static_cast<std::size_t>(std::numeric_limits<MPI_Count>::max()))
    throw Error(ErrorClass::count, "all blocks together have more bytes than 63 bits count; check the counts");
}

class Description {
 public:
  Description(Process& process, const CollectiveCall& call, Seat seat,
              const std::shared_ptr<const layout::Layout>& byte, const team::Neighbourhood* topology)
      : process_(process),
        topology_(topology),
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
    if (call_.collective == Collective::barrier) return role;
    bool known = false;
    if (call_.edges.procedure != team::NeighbourCall::none)
      known = describe_neighbours(role);
    else if (call_.collective == Collective::reduce_scatter)
      known = describe_reduce_scatter(role);
    else if (uneven(call_.collective))
      known = describe_uneven(role);
    else
      known = combines(call_.collective) ? describe_combining(role) : describe_moving(role);
    if (!known || role.shape.bytes == 0) return std::nullopt;
    return role;
  }

 private:
  [[nodiscard]] bool at_root() const noexcept { return me_ == call_.root; }
  [[nodiscard]] auto members() const noexcept { return static_cast<std::size_t>(members_); }
  [[nodiscard]] auto me() const noexcept { return static_cast<std::size_t>(me_); }

  [[nodiscard]] Extent bytes(std::size_t count) const { return Extent::of_bytes(byte_, count); }

  bool describe_elements(Role& role) {
    const auto combining = combining_in(process_, call_.receive_type, call_.op);
    if (!combining) return false;
    role.shape.element = combining->element;
    role.shape.op = combining->op;
    return true;
  }

  // What a rank sends to itself is what it receives; the size of the one side would read or write too much of the other.
  static void match(std::size_t sent, std::size_t received) {
    if (sent == received) return;
    throw Error(sent > received ? ErrorClass::truncate : ErrorClass::count,
                "what goes from a rank to itself has {} bytes by the arguments of what is sent, and {} by those of "
                "what is received; "
                "check counts and types, which have to match",
                sent, received);
  }
  // Where ranks compare what they were called with, they compare these blocks as those of others.
  void match_own(const Role& role) const {
    if (in_place_ || call_.receive == mpi::in_place() || process_.settings().check) return;
    const auto own = [&](const std::vector<PartBlock>& blocks) {
      const auto found = std::ranges::find(blocks, me_, &PartBlock::member);
      return found == blocks.end() ? 0 : found->bytes;
    };
    match(own(role.sent), own(role.received));
  }

  // Elements lie in memory as the kernels see them, with their padding.
  bool describe_combining(Role& role) {
    if (call_.receive_count <= 0 || !describe_elements(role)) return false;
    role.shape.bytes = bytes_in_all(call_.receive_count, kernel::bytes_of(role.shape.element), "elements");
    const bool scatters = call_.collective == Collective::reduce_scatter_block;
    // The receive buffers of who gets no result are not significant, and may be anything.
    const bool wants = call_.collective == Collective::reduce   ? at_root()
                       : call_.collective == Collective::exscan ? me() > 0 || in_place_
                                                                : true;
    if (in_place_ && !wants) return false;
    const std::size_t whole = scatters ? bytes_in_all(members_, role.shape.bytes, "blocks") : role.shape.bytes;
    role.in_place = in_place_;
    if (!in_place_) role.send = Part{"sendbuf", call_.send, bytes(whole)};
    if (wants) role.receive = Part{"recvbuf", call_.receive, bytes(in_place_ ? whole : role.shape.bytes)};
    return true;
  }

  bool describe_moving(Role& role) {
    std::size_t sent = 0;
    switch (call_.collective) {
      case Collective::broadcast:
        role.receive = part("buffer", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        role.in_place = at_root();
        return role.receive.has_value();
      case Collective::gather:
        if (!in_place_) role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, sent);
        role.shape.bytes = sent;
        if (at_root()) role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        if (role.send && role.receive) match(sent, role.shape.bytes);
        role.in_place = in_place_;
        role.in_place_offset = me() * role.shape.bytes;
        return (in_place_ ? at_root() : role.send.has_value()) && (!at_root() || role.receive);
      case Collective::scatter:
        if (at_root()) role.send = blocks("sendbuf", call_.send, call_.send_count, call_.send_type, role);
        sent = role.shape.bytes;
        if (call_.receive != mpi::in_place())
          role.receive = part("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role.shape.bytes);
        if (role.send && role.receive) match(sent, role.shape.bytes);
        return (!at_root() || role.send) && (role.receive || (at_root() && call_.receive == mpi::in_place()));
      case Collective::allgather:
      case Collective::alltoall:
        role.receive = blocks("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role);
        if (!role.receive) return false;
        role.in_place = in_place_;
        if (call_.collective == Collective::allgather) role.in_place_offset = me() * role.shape.bytes;
        if (in_place_) return true;
        role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, sent);
        if (!role.send) return false;
        match(sent, role.shape.bytes);
        if (call_.collective == Collective::alltoall) role.send->extent.count *= members_;
        return true;
      default:
        return false;
    }
  }

  // Who gets nothing takes part all the same.
  bool describe_reduce_scatter(Role& role) {
    if (!describe_elements(role)) return false;
    std::size_t total = 0;
    std::size_t smallest = collective::unknown_bytes;
    for (int member = 0; member < members_; ++member) {
      const MPI_Count count = call_.receive_blocks.count(static_cast<std::size_t>(member));
      if (count < 0) return false;
      const std::size_t size = bytes_in_all(count, kernel::bytes_of(role.shape.element), "elements");
      if (size != 0) role.sent.push_back({member, static_cast<std::int64_t>(total), total, size});
      if (member == me_ && size != 0) role.received.push_back({member, 0, 0, size});
      role.shape.bytes = std::max(role.shape.bytes, size);
      smallest = std::min(smallest, size);
      add_bytes(total, size);
    }
    if (total == 0) return false;
    role.shape.even = smallest == role.shape.bytes;
    role.in_place = in_place_;
    if (!in_place_) role.send = Part{"sendbuf", call_.send, bytes(total)};
    const std::size_t own = role.received.empty() ? 0 : role.received.front().bytes;
    if (in_place_ || own != 0) role.receive = Part{"recvbuf", call_.receive, bytes(in_place_ ? total : own)};
    return true;
  }

  // All but the sizes of an all-gather are known to some ranks alone, and a rank may have nothing to send or to receive: what is a
  // role on one rank must be one on all.
  bool describe_uneven(Role& role) {
    role.in_place = in_place_;
    role.shape.bytes = collective::unknown_bytes;
    switch (call_.collective) {
      case Collective::gatherv:
        if (in_place_ && !at_root()) return false;
        if (!in_place_ && !describe_sent(role, call_.root, call_.root + 1)) return false;
        if (!at_root()) return true;
        if (!describe_blocks("recvbuf", call_.receive, call_.receive_blocks, call_.receive_type, role.receive,
                             role.received))
          return false;
        match_own(role);
        return true;
      case Collective::scatterv:
        if (at_root() &&
            !describe_blocks("sendbuf", call_.send, call_.send_blocks, call_.send_type, role.send, role.sent))
          return false;
        role.in_place = call_.receive == mpi::in_place();
        if (role.in_place) return at_root();
        if (call_.receive_count < 0) return false;
        describe_single("recvbuf", call_.receive, call_.receive_count, call_.receive_type, role.receive, role.received,
                        call_.root, call_.root + 1);
        if (at_root()) match_own(role);
        return true;
      case Collective::allgatherv:
        if (!in_place_ && !describe_sent(role, 0, members_)) return false;
        if (!describe_blocks("recvbuf", call_.receive, call_.receive_blocks, call_.receive_type, role.receive,
                             role.received))
          return false;
        match_own(role);
        role.shape.bytes = 0;
        for (const PartBlock& block : role.received) role.shape.bytes = std::max(role.shape.bytes, block.bytes);
        return true;
      default:
        if (!in_place_ &&
            !describe_blocks("sendbuf", call_.send, call_.send_blocks, call_.send_type, role.send, role.sent))
          return false;
        if (!describe_blocks("recvbuf", call_.receive, call_.receive_blocks, call_.receive_type, role.receive,
                             role.received))
          return false;
        match_own(role);
        return true;
    }
  }

  // Along edges. Blocks to one member, or from one, follow one another, in an order that both ends know; the same for all ends of an
  // all-gather's edges, whichever is which.
  bool describe_neighbours(Role& role) {
    if (topology_ == nullptr || in_place_) return false;
    role.shape.bytes = collective::unknown_bytes;
    // Starts of a persistent one come in any order, in which no call of the MPI may stand.
    role.edges_askable = call_.edges.tells_edges_apart() && call_.edges.form != team::CallForm::persistent &&
                         !topology_->asked(call_.edges);
    const bool gathers = call_.edges.procedure == team::NeighbourCall::gather;
    return (gathers ? describe_spread(role)
                    : describe_blocks("sendbuf", call_.send, call_.send_blocks, call_.send_type, topology_->out(),
                                      role.send, role.sent)) &&
           describe_blocks("recvbuf", call_.receive, call_.receive_blocks, call_.receive_type,
                           topology_->in(call_.edges), role.receive, role.received);
  }

  // One block along all outgoing edges: as often behind itself as there are edges to one member at most.
  bool describe_spread(Role& role) {
    if (call_.send_count < 0) return false;
    std::size_t size = 0;
    role.send = part("sendbuf", call_.send, call_.send_count, call_.send_type, size);
    if (!role.send) return true;
    std::size_t most = 0;
    std::size_t edges = 0;
    const auto& out = topology_->out();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool again = i > 0 && out[i].rank == out[i - 1].rank;
      edges = again ? edges + 1 : 1;
      most = std::max(most, edges);
      if (again)
        role.sent.back().bytes = bytes_in_all(static_cast<MPI_Count>(edges), size, "blocks");
      else
        role.sent.push_back({out[i].rank, 0, 0, size});
    }
    if (most == 0) role.send.reset();
    if (most <= 1) return true;
    const layout::Layout& type = *role.send->extent.layout;
    const auto one = layout::repeat(type.node(), static_cast<std::uint64_t>(call_.send_count), type.extent());
    const std::vector<layout::Placed> all(most, layout::Placed{0, one});
    role.send->extent = of_blocks(all, false);
    return true;
  }

  bool describe_sent(Role& role, int first, int last) {
    if (call_.send_count < 0) return false;
    describe_single("sendbuf", call_.send, call_.send_count, call_.send_type, role.send, role.sent, first, last);
    return true;
  }

  // The same for, or from, each of these members.
  void describe_single(const char* argument, const void* base, MPI_Count count, MPI_Datatype type,
                       std::optional<Part>& part_of_it, std::vector<PartBlock>& blocks, int first, int last) {
    std::size_t size = 0;
    part_of_it = part(argument, base, count, type, size);
    if (!part_of_it) return;
    for (int member = first; member < last; ++member) blocks.push_back({member, 0, 0, size});
  }

  // One for each member, anywhere in the buffer. False where a count is none.
  bool describe_blocks(const char* argument, const void* base, const BlockArrays& arrays, MPI_Datatype type,
                       std::optional<Part>& part_of_it, std::vector<PartBlock>& blocks) {
    std::vector<team::Neighbourhood::Edge> everybody;
    everybody.reserve(static_cast<std::size_t>(members_));
    for (int member = 0; member < members_; ++member) everybody.push_back({member, static_cast<std::size_t>(member)});
    return describe_blocks(argument, base, arrays, type, everybody, part_of_it, blocks);
  }

  // Those of these edges, which are in the order of members.
  bool describe_blocks(const char* argument, const void* base, const BlockArrays& arrays, MPI_Datatype type,
                       const std::vector<team::Neighbourhood::Edge>& edges, std::optional<Part>& part_of_it,
                       std::vector<PartBlock>& blocks) {
    std::shared_ptr<const layout::Layout> element;
    std::vector<layout::Placed> placed;
    std::size_t packed = 0;
    bool contiguous = true;
    std::int64_t end = 0;  // of the block before
    for (const auto& [member, block] : edges) {
      const MPI_Count count = arrays.count(block);
      if (count < 0) return false;
      if (count == 0) continue;
      if (element == nullptr || arrays.typed())
        element = process_.layouts().of(arrays.typed() ? arrays.type(block) : type);
      const std::size_t size = element->packed_size(count);
      if (size == 0) continue;
      const std::int64_t unit = arrays.typed() ? 1 : element->extent();
      const layout::Span span = element->span(count);
      std::int64_t offset = 0, first = 0, behind = 0;
      if (__builtin_mul_overflow(arrays.displacement(block), unit, &offset) ||
          __builtin_add_overflow(offset, span.begin, &first) || __builtin_add_overflow(offset, span.end, &behind))
        throw Error(ErrorClass::argument,
                    "argument {}: the displacement of block {} is {}, farther than 64-bit addresses reach", argument,
                    block, arrays.displacement(block));
      // Blocks of one member are one piece where each begins at the end of the one before.
      const bool goes_on = !blocks.empty() && blocks.back().member == member;
      contiguous = contiguous && element->contiguous(count) && (!goes_on || first == end);
      end = behind;
      placed.push_back({offset, layout::repeat(element->node(), static_cast<std::uint64_t>(count), element->extent())});
      blocks.push_back({member, first, packed, size});
      add_bytes(packed, size);
    }
    if (placed.empty()) return true;
    part_of_it = Part{argument, base, of_blocks(placed, contiguous)};
    part_of_it->extent.apart = arrays.typed();
    for (PartBlock& block : blocks) block.first -= part_of_it->extent.layout->true_lb();
    return true;
  }

  static Extent of_blocks(const std::vector<layout::Placed>& placed, bool contiguous) {
    const auto node = layout::join(placed);
    return {std::make_shared<const layout::Layout>(node, 0, static_cast<std::int64_t>(node->size)), 1, contiguous};
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
    if (!all) return all;
    static_cast<void>(bytes_in_all(members_, role.shape.bytes, "blocks"));
    all->extent.count *= members_;
    return all;
  }

  Process& process_;
  const team::Neighbourhood* topology_;
  const CollectiveCall& call_;
  int members_, me_;
  const std::shared_ptr<const layout::Layout>& byte_;
  bool in_place_;
};

}  // namespace

std::optional<Combining> combining_in(Process& process, MPI_Datatype type, MPI_Op op) {
  const auto combining = combining_of(process.library().handles(), type, op);
  if (!combining || !combining->by_flags) return combining;
  const auto usual = static_cast<std::int64_t>(kernel::bytes_of(combining->element));
  return process.layouts().of(type)->extent() == usual ? combining : std::nullopt;
}

collective::Pieces pieces_of(const Role& role, Seat seat, bool sends_itself, bool receives_itself) {
  collective::Pieces pieces;
  const auto at = [](auto& side, int member) -> auto& { return side[static_cast<std::size_t>(member)]; };
  const auto place = [](const PartBlock& block, bool itself) {
    return collective::Pieces::Piece{itself ? static_cast<std::size_t>(block.first) : block.packed, block.bytes};
  };
  const auto add = [&](auto& side, const PartBlock& block, bool itself) {
    auto& piece = at(side, block.member);
    const std::size_t before = piece.bytes;
    if (before == 0) piece = place(block, itself);
    piece.bytes = before + block.bytes;
  };
  for (const PartBlock& block : role.received) add(pieces.receive, block, receives_itself);
  for (const PartBlock& block : role.sent) add(pieces.send, block, sends_itself);
  if (!role.in_place) return pieces;
  switch (role.shape.collective) {
    case Collective::allgatherv:
      for (int member = 0; member < seat.members; ++member) at(pieces.send, member) = at(pieces.receive, seat.me);
      break;
    case Collective::gatherv:
      at(pieces.send, seat.me) = at(pieces.receive, seat.me);
      break;
    case Collective::scatterv:
      at(pieces.receive, seat.me) = at(pieces.send, seat.me);
      break;
    case Collective::alltoallv:
      pieces.send = pieces.receive;
      break;
    default:  // a reduce-scatter's contribution is the whole buffer
      break;
  }
  return pieces;
}

std::optional<Role> role_of(Process& process, const CollectiveCall& call, Seat seat,
                            const std::shared_ptr<const layout::Layout>& byte, const team::Neighbourhood* topology) {
  return Description(process, call, seat, byte, topology).role();
}

}  // namespace crosslane::interpose
