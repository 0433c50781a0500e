// See sending.h; and MPI_Send, MPI_Ssend and MPI_Rsend (MPI 5.0, section 3.4) with GPU memory.
#include "interpose/sending.h"

#include "interpose/manual.h"
#include "interpose/receive.h"
#include "message/header.h"

#include <utility>

namespace crosslane::interpose {

std::optional<std::size_t> packed_bytes(Process& process, MPI_Count count, MPI_Datatype type) noexcept {
  if (count < 0) return std::nullopt;
  try {
    return process.layouts().of(type)->packed_size(count);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Sending::~Sending() {
  if (header_) route_.process().transfers().close(*header_);
}

message::Protocol Sending::choose(bool on_gpu, std::size_t bytes, int dest, MPI_Comm comm) {
  auto& process = route_.process();
  message::Envelope envelope{
      .on_gpu = on_gpu, .bytes = bytes, .waits = true, .threshold = process.settings().pipeline_bytes};
  // The threshold first: it costs nothing.
  if (envelope.threshold != 0 && bytes >= envelope.threshold && process.world() != nullptr &&
      process.world()->agreed() && dest >= 0) {
    const int peer = process.communicators()->of(comm).world_rank(dest);
    envelope.to_self = peer == process.world()->rank();
    envelope.peer_looks = process.world()->looks_at_receives(peer);
  }
  const message::Protocol protocol = message::choose(envelope);
  if (protocol != message::Protocol::chunked) return protocol;
  header_ = process.transfers().open(bytes);
  return header_ ? protocol : message::Protocol::staged;
}

int Sending::start_chunked(const message::Buffer& buffer, int dest, int tag, MPI_Comm comm, Procedure seen) {
  auto& process = route_.process();
  const auto& below = process.library().below();
  const auto& operation = route_.operation();
  process.took_route(operation.call, "chunked", buffer.bytes);
  auto& transfers = process.transfers();
  const message::Header header = std::exchange(header_, std::nullopt).value();
  // What MPI and the transfer refer to, whatever becomes of this call.
  struct Posted {
    message::HeaderMessage header;
    MPI_Request request{};
    std::shared_ptr<Operation> operation;
  };
  const auto posted = std::make_shared<Posted>(Posted{message::encode(header), {}, route_.shared_operation()});
  const auto bytes = static_cast<int>(posted->header.size());
  const auto byte = process.library().handles().byte;
  const bool tool = route_.next().Send != below.Send;
  // Synchronous in each mode: until it is matched, waiting is the application's own; after that it is ours: the
  // receiver may wait for this rank. To a tool it has to be the application's call, and counts as matched.
  const int code = tool && seen != nullptr
                       ? seen(route_.next(), posted->header.data(), bytes, byte, dest, tag, comm)
                       : below.Issend(posted->header.data(), bytes, byte, dest, tag, comm, &posted->request);
  const engine::Completion matched =
      tool && seen != nullptr ? engine::Completion{} : engine::Completion::of(&posted->request);
  if (code != mpi::success) {
    transfers.close(header);
    return code;
  }
  const int peer = process.communicators()->of(comm).world_rank(dest);
  transfer_ = process.engine().spawn(transfers.send(buffer, header, peer, matched, operation.watch(), posted));
  return mpi::success;
}

int Sending::start_plain(const void* address, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  plain_ = true;
  return mpi::calls::Isend(route_.next(), address, count, type, dest, tag, comm, &request_);
}

bool Sending::done() {
  if (plain_) {
    int flag = 0;
    const auto& below = route_.process().library().below();
    team::check(below, below.Test(&request_, &flag, mpi::status_ignore()), "MPI_Isend");
    plain_ = flag == 0;
    return flag != 0;
  }
  if (!transfer_.done()) return false;
  transfer_.rethrow();
  return true;
}

void Sending::finish() {
  wait_until(route_.process(), [&] { return transfer_.done(); }, route_.operation().watch());
  transfer_.rethrow();
}

int manual::send(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
                 int dest, int tag, MPI_Comm comm) {
  auto& process = site.process();
  return run_route(process, site.next(), call, Target::of_comm(comm), [&](Route& route) {
    const auto& argument =
        route.single("buf", buf, "count", count, 1, datatype, Direction::in, lane::Form::packed, false);
    Sending sending(route);
    const Sending::Procedure procedure = mode == Mode::synchronous ? mpi::calls::Ssend
                                         : mode == Mode::ready     ? mpi::calls::Rsend
                                                                   : mpi::calls::Send;
    if (sending.choose(argument.on_gpu(), argument.bytes(), dest, comm) == message::Protocol::chunked) {
      process.settle(false);
      const message::Buffer buffer{true,
                                   argument.place(),
                                   static_cast<std::byte*>(const_cast<void*>(buf)),
                                   process.layouts().of(datatype),
                                   count,
                                   argument.bytes(),
                                   nullptr};
      if (const int code = sending.start_chunked(buffer, dest, tag, comm, procedure); code != mpi::success) return code;
      sending.finish();
      return mpi::success;
    }
    return route.blocking(mpi::status_ignore(), [&](const mpi::Functions& next, mpi::Narrowed&, MPI_Status*) {
      return procedure(next, argument.address(), argument.count(), argument.type(), dest, tag, comm);
    });
  });
}

}  // namespace crosslane::interpose
