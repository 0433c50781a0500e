// See native.h.
#include "interpose/native.h"

#include "base/error.h"
#include "gpu/context.h"
#include "gpu/copy.h"
#include "interpose/call_facts.h"
#include "interpose/elements.h"
#include "interpose/teams.h"
#include "mpi/raised.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::interpose::native {
namespace {

using base::Error;
using base::ErrorClass;
using collective::Collective;

// See op_of(). What is said with it has to fit in Open MPI's 256 characters.
constexpr const char* operations_taken =
    "MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC and "
    "MPI_MAXLOC";

Seat seat_in(Process& process, MPI_Comm comm) {
  const auto& below = process.library().below();
  Seat seat{};
  int inter = mpi::untold;
  seat.members = seat.me = mpi::untold;
  mpi::heed(below.Comm_test_inter(comm, &inter), inter);
  mpi::heed(below.Comm_size(comm, &seat.members), seat.members);
  mpi::heed(below.Comm_rank(comm, &seat.me), seat.me);
  if (inter != 0) throw Error(ErrorClass::unsupported, "argument comm is an inter-communicator: use the groups' own");
  return seat;
}

// The node's ranks of a communicator's members. Throws Error (unsupported) with the reason where calls cannot go directly.
std::vector<int> local_ranks_of(Process& process, const team::CommunicatorFacts& facts) {
  const team::World& world = *process.world();
  if (!world.agreed())
    throw Error(ErrorClass::unsupported, "with CROSSLANE_WORLD=partial ranks do not know of each other's GPUs");
  auto local_ranks = world.local_ranks(facts.world_ranks);
  if (!local_ranks)
    throw Error(ErrorClass::unsupported,
                "the communicator's ranks do not all share this rank's node: make one of those that do "
                "(MPI_Comm_split_type with MPI_COMM_TYPE_SHARED)");
  if (local_ranks->size() > static_cast<std::size_t>(share::Board::most_members))
    throw Error(ErrorClass::unsupported, "the communicator has {} ranks, and at most {} can be connected directly",
                local_ranks->size(), share::Board::most_members);
  if (process.teams() == nullptr)
    throw Error(ErrorClass::unsupported, "no GPU may appear on this node; see `crosslane doctor`");
  return *std::move(local_ranks);
}

// Of a buffer whose first byte, at `address`, is not in device memory. A null one may lead anywhere, by its datatype.
std::string what_it_is(const std::string& argument, const void* base, const void* address, gpu::PointerInfo::Kind kind,
                       const char* remedy) {
  using Kind = gpu::PointerInfo::Kind;
  if (kind != Kind::host || gpu::Gpu::readable_by_cpu(address))
    return fmt::format("argument {} ({}) is {} memory; {}", argument, address,
                       kind == Kind::managed ? "managed" : "host", remedy);
  if (base == nullptr) return fmt::format("argument {} is null; pass device memory", argument);
  return fmt::format("argument {} ({}) lies where there is no memory; was it freed?", argument, address);
}

std::vector<team::Prepared::Buffer> inspect(Process& process, int count, void* const buffers[]) {
  std::vector<team::Prepared::Buffer> list;
  if (count < 0) throw Error(ErrorClass::count, "argument count is {}; a count is never negative", count);
  if (count > 0 && buffers == nullptr)
    throw Error(ErrorClass::argument, "argument buffers is null, count is {}", count);
  for (int index = 0; index < count; ++index) {
    auto* const address = static_cast<std::byte*>(buffers[index]);
    const auto info = process.gpu().inspect(address);
    if (info.kind != gpu::PointerInfo::Kind::device)
      throw Error(ErrorClass::buffer, what_it_is(fmt::format("buffers[{}]", index), address, address, info.kind,
                                                 "name device memory alone"));
    list.push_back({address, info});
  }
  return list;
}

// The GPU and context that this rank takes part with.
team::Home& home_for(Process& process, const std::vector<team::Prepared::Buffer>& buffers) {
  if (!process.gpu().present())
    throw Error(ErrorClass::unsupported, "no CUDA driver is loaded in this process, so there is no GPU");
  const gpu::Driver& driver = process.gpu().driver();
  lane::Place place;
  if (!buffers.empty()) {
    place = process.copier().place(buffers.front().info);
  } else {
    gpu::check(driver, driver.ctx_get_current(&place.context), "cuCtxGetCurrent");
    if (place.context == nullptr)
      throw Error(ErrorClass::other,
                  "no CUDA context is current, and no buffer says which GPU to use: choose one (cudaSetDevice, "
                  "cuCtxSetCurrent) or name a buffer");
    place.device = gpu::current_device(driver);
  }
  team::Home* const home = process.teams()->home_at(place);
  if (home == nullptr)
    throw Error(ErrorClass::unsupported, "GPU {} cannot take part in collectives; a warning told why", place.device);
  const auto same = [&](CUcontext context, int device) {
    return context == nullptr ? device == home->device() : context == home->context();
  };
  if (!same(place.context, place.device))
    throw Error(ErrorClass::unsupported,
                "this process takes part in collectives with GPU {}, in the context whose memory it passed first; this "
                "communicator was to use GPU {} or another context",
                home->device(), place.device);
  for (std::size_t index = 0; index < buffers.size(); ++index) {
    if (!same(buffers[index].info.context, buffers[index].info.device))
      throw Error(ErrorClass::buffer, "argument buffers[{}] is memory of another GPU or context than GPU {}'s", index,
                  home->device());
  }
  return *home;
}

// Who is root, and what it alone may pass.
void check_root(const CollectiveCall& call, Seat seat) {
  if (call.root < 0 || call.root >= seat.members)
    throw Error(ErrorClass::root, "argument root is {}, but the communicator's ranks are 0 to {}", call.root,
                seat.members - 1);
  if (seat.me == call.root) return;
  const char* argument = nullptr;
  switch (call.collective) {
    case Collective::reduce:
    case Collective::gather:
    case Collective::gatherv:
      if (call.send == mpi::in_place()) argument = "sendbuf";
      break;
    case Collective::scatter:
    case Collective::scatterv:
      if (call.receive == mpi::in_place()) argument = "recvbuf";
      break;
    default:
      break;
  }
  if (argument != nullptr)
    throw Error(ErrorClass::buffer, "argument {} is MPI_IN_PLACE, which is for the root alone", argument);
}

// The arrays that this rank passes for blocks that each have a count: those it sends, and those it receives; null for none.
std::array<const BlockArrays*, 2> arrays_of(const CollectiveCall& call, Seat seat) {
  const bool at_root = seat.me == call.root;
  const bool sends = call.collective == Collective::scatterv ? at_root : call.collective == Collective::alltoallv;
  const bool receives = call.collective == Collective::gatherv ? at_root : call.collective != Collective::scatterv;
  return {sends && call.send != mpi::in_place() ? &call.send_blocks : nullptr,
          receives ? &call.receive_blocks : nullptr};
}

// What crosslane.h calls them.
const char* name_of_count(const CollectiveCall& call, bool sent) {
  if (sent) return "sendcount";
  const bool one = call.collective == Collective::broadcast ||
                   (combines(call.collective) && call.collective != Collective::reduce_scatter_block);
  return one ? "count" : "recvcount";
}
const char* name_of_counts(bool sent) { return sent ? "sendcounts" : "recvcounts"; }
const char* name_of_displacements(const CollectiveCall& call, bool sent) {
  if (call.collective != Collective::alltoallv) return "displs";
  return sent ? "sdispls" : "rdispls";
}

// What says how far a buffer goes, beside its datatype.
std::string sizes_of(const CollectiveCall& call, bool sent) {
  const BlockArrays& arrays = sent ? call.send_blocks : call.receive_blocks;
  if (arrays.has_displacements()) return fmt::format("{}, {}", name_of_counts(sent), name_of_displacements(call, sent));
  return arrays.has_counts() ? name_of_counts(sent) : name_of_count(call, sent);
}

void check_arrays(const CollectiveCall& call, Seat seat) {
  const bool displaced = !combines(call.collective);
  const auto arrays = arrays_of(call, seat);
  for (std::size_t side = 0; side < arrays.size(); ++side) {
    const BlockArrays* const blocks = arrays[side];
    if (blocks == nullptr || (blocks->has_counts() && (blocks->has_displacements() || !displaced))) continue;
    const bool sent = side == 0;
    throw Error(ErrorClass::argument, "argument {} is null",
                blocks->has_counts() ? name_of_displacements(call, sent) : name_of_counts(sent));
  }
}

void explain_blocks(const CollectiveCall& call, Seat seat) {
  const auto arrays = arrays_of(call, seat);
  for (std::size_t block = 0; block < static_cast<std::size_t>(seat.members); ++block) {
    for (std::size_t side = 0; side < arrays.size(); ++side) {
      if (arrays[side] != nullptr && arrays[side]->count(block) < 0)
        throw Error(ErrorClass::count, "argument {}[{}] is {}; a count is never negative", name_of_counts(side == 0),
                    block, arrays[side]->count(block));
    }
  }
}

// Only what MPI takes is sent there.
void explain_combining(Process& process, const CollectiveCall& call) {
  const auto& handles = process.library().handles();
  if (call.receive_type == handles.datatype_null)
    throw Error(ErrorClass::type, "argument datatype is MPI_DATATYPE_NULL, which is no datatype");
  if (!element_of(handles, call.receive_type))
    throw Error(ErrorClass::type,
                "argument datatype: enqueued reductions take predefined datatypes that a GPU can hold; use MPI's own "
                "call, which goes through the host");
  if (call.op == handles.op_null) throw Error(ErrorClass::op, "argument op is MPI_OP_NULL, which is no operation");
  if (call.op == handles.replace || call.op == handles.no_op)
    throw Error(ErrorClass::op, "argument op is {}, which is for one-sided calls alone: reductions take {}",
                call.op == handles.replace ? "MPI_REPLACE" : "MPI_NO_OP", operations_taken);
  if (!op_of(handles, call.op))
    throw Error(ErrorClass::op, "argument op is the application's own: enqueued reductions take {}; use MPI's own call",
                operations_taken);
  if (!combining_of(handles, call.receive_type, call.op))
    throw Error(ErrorClass::op, "argument op: MPI does not define the operation for this datatype");
  if (!combining_in(process, call.receive_type, call.op))
    throw Error(ErrorClass::type,
                "argument datatype: the MPI's Fortran compiler gave it another size than kernels know; use one whose "
                "name tells its size (MPI_INTEGER8)");
}

// Why there is nothing to enqueue for arguments that have no role; returns where they ask for nothing.
void explain(Process& process, const CollectiveCall& call, Seat seat) {
  const bool at_root = seat.me == call.root;
  const bool sends = call.collective != Collective::broadcast && call.send != mpi::in_place() &&
                     (call.collective != Collective::scatter || at_root);
  const bool receives = call.receive != mpi::in_place() && (call.collective != Collective::gather || at_root);
  for (const bool sent : {false, true}) {
    const MPI_Count count = sent ? call.send_count : call.receive_count;
    if ((sent ? sends : receives) && count < 0)
      throw Error(ErrorClass::count, "argument {} is {}; a count is never negative", name_of_count(call, sent), count);
  }
  if (uneven(call.collective)) explain_blocks(call, seat);
  if (combines(call.collective)) explain_combining(process, call);
}

gpu::StreamView view_of(const gpu::Driver& driver, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return gpu::StreamView::legacy(driver);
  if (stream == CU_STREAM_PER_THREAD) return gpu::StreamView::per_thread(driver);
  return gpu::StreamView::of(driver, stream);
}

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// The default streams are the current context's: enqueued to another one's, a call would be waited for by nobody who waits for them.
// Where none is current they are those of `home`, which is of GPU `device`.
void check_stream(const gpu::Driver& driver, CUstream stream, CUcontext home, int device, const char* of_whom) {
  if (!is_default(stream)) {
    if (gpu::StreamView::of(driver, stream).context() != home)
      throw Error(ErrorClass::argument, "argument stream is of another GPU or context than GPU {}'s, {}", device,
                  of_whom);
    return;
  }
  CUcontext current = nullptr;
  gpu::check(driver, driver.ctx_get_current(&current), "cuCtxGetCurrent");
  if (current != nullptr && current != home)
    throw Error(
        ErrorClass::argument,
        "argument stream: default streams are the current context's, which is not that of GPU {}, {}; make that "
        "current (cudaSetDevice, cuCtxSetCurrent), or pass a stream of it",
        device, of_whom);
}

// Of which argument a call takes MPI_IN_PLACE, if of any.
const char* in_place_of(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
      return nullptr;
    case Collective::scatter:
    case Collective::scatterv:
      return "recvbuf, at the root";
    case Collective::reduce:
    case Collective::gather:
    case Collective::gatherv:
      return "sendbuf, at the root";
    default:
      return "sendbuf";
  }
}

// The block that begins first in a part whose blocks lie where the application says: as its displacement, "displs[1], which is -7,".
std::optional<std::string> first_displacement(const CollectiveCall& call, const Role& role, bool sent) {
  const BlockArrays& arrays = sent ? call.send_blocks : call.receive_blocks;
  const auto& blocks = sent ? role.sent : role.received;
  const auto first = std::ranges::find(blocks, 0, &PartBlock::first);
  if (!arrays.has_displacements() || first == blocks.end()) return std::nullopt;
  const auto block = static_cast<std::size_t>(first->member);
  return fmt::format("{}[{}], which is {},", name_of_displacements(call, sent), block, arrays.displacement(block));
}

bool is_sent(const Role& role, const Part& part) { return role.send && &part == &*role.send; }

// Why a buffer whose first byte is at `data` is none that kernels can use.
[[noreturn]] void explain_buffer(Process& process, const CollectiveCall& call, const Role& role, const Part& part,
                                 const std::byte* data, gpu::PointerInfo::Kind kind) {
  if (part.base == mpi::in_place()) {
    const char* const other = in_place_of(call.collective);
    throw Error(ErrorClass::buffer, "argument {} is MPI_IN_PLACE, which this call {}{}", part.argument,
                other != nullptr ? "takes only as " : "does not take", other != nullptr ? other : "");
  }
  const bool led_away = data != part.base && process.gpu().inspect(part.base).kind == gpu::PointerInfo::Kind::device;
  if (led_away) {
    const auto displacement = first_displacement(call, role, is_sent(role, part));
    throw Error(ErrorClass::buffer, "argument {} is device memory, but {} leads out of it, to {}", part.argument,
                displacement ? *displacement : std::string("its datatype"), static_cast<const void*>(data));
  }
  throw Error(ErrorClass::buffer, what_it_is(part.argument, part.base, data, kind,
                                             "enqueued calls need device memory: copy it there, or use MPI's own "
                                             "call"));
}

// A buffer that kernels can use where it is; `home` is null for a rank alone, whose GPU does not matter.
std::byte* device_buffer(Process& process, const Part& part, const CollectiveCall& call, const Role& role,
                         const team::Home* home, const team::Prepared* prepared) {
  const auto span = part.extent.layout->span(part.extent.count);
  std::byte* const data = lane::byte_at(part.base, static_cast<std::ptrdiff_t>(span.begin));
  const auto length = static_cast<std::size_t>(span.end) - static_cast<std::size_t>(span.begin);
  gpu::Gpu& gpu = process.gpu();
  const auto info = gpu.inspect(data);
  if (info.kind != gpu::PointerInfo::Kind::device) explain_buffer(process, call, role, part, data, info.kind);
  if (!part.extent.usable())
    throw Error(ErrorClass::type,
                "argument {}: enqueued calls need a datatype without gaps; pack it first, or use MPI's own call",
                part.argument);
  if (!info.holds(data, length) && gpu.contiguous_from(data, length) < length)
    throw Error(ErrorClass::buffer,
                "argument {} spans {} bytes from {}, but its GPU allocation ends before; check {} and datatype against "
                "what was allocated",
                part.argument, length, static_cast<const void*>(data), sizes_of(call, is_sent(role, part)));
  if (home != nullptr) {
    const bool ours = info.context == nullptr ? info.device == home->device() : info.context == home->context();
    if (!ours)
      throw Error(
          ErrorClass::buffer,
          "argument {} is memory of another GPU or context than GPU {}'s, which the communicator was prepared with",
          part.argument, home->device());
    if (!prepared->lives(data, info.buffer_id))
      throw Error(
          ErrorClass::buffer,
          "argument {} lies where a buffer was that crosslane_prepare was given, and that was freed since; prepare "
          "the communicator again, with the buffers that there are now",
          part.argument);
  }
  return data;
}

struct Arguments {
  collective::Buffers buffers;
  std::optional<collective::Pieces> pieces;  // where blocks may differ
  bool in_place = false;
};

Arguments arguments_of(Process& process, const CollectiveCall& call, const Role& role, Seat seat,
                       const team::Home* home, const team::Prepared* prepared) {
  Arguments arguments;
  collective::Buffers& buffers = arguments.buffers;
  if (role.receive) buffers.receive = device_buffer(process, *role.receive, call, role, home, prepared);
  if (role.send) {
    std::byte* const send = device_buffer(process, *role.send, call, role, home, prepared);
    buffers.send = send;
    // MPI_IN_PLACE at the root of a scatter: its block stays where it is.
    if (!role.receive && role.shape.collective == Collective::scatter)
      buffers.receive = send + static_cast<std::size_t>(seat.me) * role.shape.bytes;
    if (!role.receive && role.shape.collective == Collective::scatterv) buffers.receive = send;
  } else if (role.in_place && role.receive) {
    buffers.send = buffers.receive + role.in_place_offset;
    arguments.in_place = role.shape.collective != Collective::broadcast;
  }
  if (uneven(role.shape.collective)) arguments.pieces = pieces_of(role, seat, true, true);
  // Its result would come where blocks are still to be read.
  if (arguments.in_place && !role.shape.even)
    throw Error(
        ErrorClass::unsupported,
        "argument sendbuf is MPI_IN_PLACE, which enqueued reduce-scatters take for blocks of one size alone; pass a "
        "buffer of its own");
  return arguments;
}

// For memory of a GPU that is of no context (pools, virtual memory): the stream's own if that is of the GPU, else the primary one.
CUcontext context_for(Process& process, const gpu::PointerInfo& info, CUstream stream) {
  const gpu::Driver& driver = process.gpu().driver();
  CUcontext asked = nullptr;
  if (is_default(stream))
    gpu::check(driver, driver.ctx_get_current(&asked), "cuCtxGetCurrent");
  else
    asked = gpu::StreamView::of(driver, stream).context();
  if (asked != nullptr) {
    const gpu::ContextScope scope(driver, asked);
    if (gpu::current_device(driver) == info.device) return asked;
  }
  return process.copier().place(info).context;
}

// All that a collective of one rank does, in the context of what it receives.
void copy_own(Process& process, const Role& role, const Arguments& arguments, CUstream stream) {
  const collective::Buffers& buffers = arguments.buffers;
  const std::byte* const own = buffers.receive != nullptr ? buffers.receive : buffers.send;
  if (own == nullptr) return;
  const gpu::Driver& driver = process.gpu().driver();
  const auto info = process.gpu().inspect(own);
  CUcontext const context = info.context != nullptr ? info.context : context_for(process, info, stream);
  check_stream(driver, stream, context, info.device, "whose memory is passed");
  if (role.shape.collective == Collective::exscan || buffers.send == nullptr || buffers.receive == nullptr) return;
  collective::Pieces::Piece from{0, role.shape.bytes}, to = from;
  if (arguments.pieces) {
    from = arguments.pieces->send.front();
    to = arguments.pieces->receive.front();
  }
  if (buffers.send + from.offset == buffers.receive + to.offset || to.bytes == 0) return;
  const gpu::ContextScope scope(driver, context);
  gpu::copy_async(buffers.receive + to.offset, buffers.send + from.offset, to.bytes, view_of(driver, stream));
}

}  // namespace

void prepare(Process& process, MPI_Comm comm, MPI_Count bytes, int count, void* const buffers[]) {
  const Seat seat = seat_in(process, comm);
  const auto check_bytes = [&] {
    if (bytes < 0) throw Error(ErrorClass::count, "argument bytes is {}; a number of bytes is never negative", bytes);
  };
  if (seat.members == 1) {
    check_bytes();
    static_cast<void>(inspect(process, count, buffers));
    return;
  }
  team::Prepared::Wish wish;
  std::vector<int> local_ranks(static_cast<std::size_t>(seat.members));
  team::CommunicatorFacts* facts = nullptr;
  try {
    check_bytes();
    wish.largest = static_cast<std::size_t>(bytes);
    if (process.communicators() == nullptr)
      throw Error(
          ErrorClass::unsupported,
          "Crosslane is switched off (CROSSLANE_DISABLE, CROSSLANE_MODE), or MPI was initialized by sessions alone");
    team::CommunicatorFacts& known = process.communicators()->of(comm);
    if (known.of_session)
      throw Error(
          ErrorClass::unsupported,
          "the communicator comes from a session, which may outlive MPI_Finalize: make one from MPI_COMM_WORLD");
    facts = &known;
    local_ranks = local_ranks_of(process, *facts);
    wish.buffers = inspect(process, count, buffers);
    wish.home = &home_for(process, wish.buffers);
    wish.number = process.teams()->next_number();
    wish.reclaim = [&process] { process.teams()->give_back_freed(); };
  } catch (const Error& error) {
    // Told to all before anybody throws it: they wait.
    wish.refusal = error;
    wish.buffers.clear();
  }
  const NamedCommunicator named{process, comm};
  const team::Prepared::Exchange exchange{
      team::Messenger{process.library().below(), process.library().handles(), comm},
      process.engine(),
      {.call = "crosslane_prepare", .name = NamedCommunicator::name, .context = &named}};
  if (wish.refusal && (facts == nullptr || process.teams() == nullptr)) {
    team::Prepared(process.engine(), std::move(local_ranks), seat.me).prepare(exchange, wish);
    return;
  }
  process.teams()->prepared(*facts, std::move(local_ranks), seat.me).prepare(exchange, wish);
}

int missing(Process& process, MPI_Comm comm) {
  static_cast<void>(seat_in(process, comm));
  if (process.communicators() == nullptr) return -1;
  const auto& prepared = process.communicators()->of(comm).prepared;
  return prepared == nullptr || !prepared->connected() || !prepared->home().stands() ? -1 : prepared->missing();
}

void enqueue(Process& process, const CollectiveCall& call, CUstream stream) {
  Seat seat = {};
  const team::Prepared* prepared = nullptr;
  if (process.communicators() != nullptr) prepared = process.communicators()->of(call.comm).prepared.get();
  if (prepared != nullptr && prepared->connected()) {
    seat = {prepared->size(), prepared->me()};
  } else {
    prepared = nullptr;
    seat = seat_in(process, call.comm);
    if (seat.members > 1)
      throw Error(ErrorClass::comm,
                  "argument comm was not prepared: call crosslane_prepare on all its ranks first, once");
  }
  if (prepared != nullptr && !prepared->home().stands())
    throw Error(ErrorClass::other,
                "the CUDA context that the communicator was prepared in was destroyed or reset: nothing can be "
                "enqueued there any more; "
                "use the blocking procedures");
  if (prepared != nullptr && prepared->missing() >= 0) {
    throw Error(
        ErrorClass::other,
        "rank {} of the communicator did not enqueue its side of an earlier call within {:.1f} s, or its process or "
        "GPU is gone; the communicator takes no more enqueued calls",
        prepared->missing(), process.teams()->enqueued().limit_seconds());
  }
  if (!process.gpu().present()) throw Error(ErrorClass::unsupported, "no CUDA driver is loaded in this process");
  const auto byte = process.teams() != nullptr ? process.teams()->byte()
                                               : std::make_shared<const layout::Layout>(layout::block(0, 1), 0, 1);
  check_root(call, seat);
  if (uneven(call.collective)) check_arrays(call, seat);
  const auto role = role_of(process, call, seat, byte);
  if (!role) return explain(process, call, seat);
  const trace::Span span(process.tracer(), trace::Kind::call, call.call, role->bytes());
  const gpu::Driver& driver = process.gpu().driver();
  team::Home* const home = prepared == nullptr ? nullptr : &prepared->home();
  const Arguments arguments = arguments_of(process, call, *role, seat, home, prepared);
  if (prepared == nullptr) return copy_own(process, *role, arguments, stream);
  check_stream(driver, stream, home->context(), home->device(), "which the communicator was prepared with");
  const gpu::StreamView view = view_of(driver, stream);
  const collective::Algorithm& algorithm =
      process.teams()->enqueued().run(*prepared, role->shape, arguments.buffers,
                                      arguments.pieces ? &*arguments.pieces : nullptr, arguments.in_place, view);
  process.teams()->count(algorithm);
  process.took_route(call.call, algorithm.name, role->bytes());
}

}  // namespace crosslane::interpose::native
