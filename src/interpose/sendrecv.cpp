// The calls that send and receive at once (MPI 5.0, section 3.11) on a rank that looks at what it receives. The receive
// is posted first, then the send starts by its own protocol, and one wait drives both.
#include "base/function_ref.h"
#include "interpose/manual.h"
#include "interpose/mutant.h"
#include "interpose/receive.h"
#include "interpose/sending.h"
#include "message/protocols.h"
#include "mpi/status.h"

#include <string>
#include <utility>

namespace crosslane::interpose {
namespace {

// What an exchange sends, as the application gave it.
struct Send {
  const char* buffer_name;
  const char* count_name;
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
  int dest;
  int tag;
};

// A packed copy of a buffer on the host: the receive may write to the original.
struct PackedCopy {
  lane::HostBlock pinned;
  std::unique_ptr<std::byte, Freed> plain;
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  PackedCopy(Route& route, const message::Buffer& buffer) : bytes(buffer.bytes) {
    if (bytes == 0) return;
    auto& process = route.process();
    if (buffer.on_gpu) {
      lane::Batch batch(process.copier(), route.operation().watch());
      pinned = batch.lend(buffer.place, bytes);
      data = pinned.data();
      if (mutated(route.operation().call, "copy in dropped")) return;
      batch.to_host(buffer.place, data, buffer.address, *buffer.layout, buffer.count, 0, bytes, lane::Form::packed);
      batch.wait();
      return;
    }
    plain.reset(static_cast<std::byte*>(std::malloc(bytes)));
    if (!plain) throw std::bad_alloc();
    data = plain.get();
    buffer.layout->pack(data, buffer.address, buffer.count, 0, bytes);
  }
};

message::Buffer host_copy(const std::shared_ptr<PackedCopy>& copy) {
  message::Buffer buffer;
  buffer.address = copy->data;
  buffer.bytes = copy->bytes;
  buffer.owner = copy;
  return buffer;
}

// What is replaced, where it lies in several memories: its host copy is what is sent.
void gather(Route& route) {
  const Operation& operation = route.operation();
  if (!operation.look->apart || mutated(operation.call, "copy in dropped")) return;
  lane::Batch batch(route.process().copier(), operation.watch());
  operation.arguments.front().fetch(batch);
  batch.wait();
}

// A buffer that is replaced: what it held is on its way, or copied to be sent.
class Copied {
 public:
  /// The buffer may be written to after that.
  Copied(Route& route, Sending& sending, const message::Buffer& buffer, int dest, bool waits)
      : route_(route),
        sending_(sending),
        buffer_(buffer),
        protocol_(mutated(route.operation().call, "copy in dropped")
                      ? message::Protocol::staged
                      : sending.choose(buffer, dest, {.waits = waits, .copies = true})) {
    if (protocol_ == message::Protocol::packed) {
      sending.copy(buffer);
    } else {
      copy_ = std::make_shared<PackedCopy>(route, buffer);
    }
  }

  /// Starts the send. Returns MPI's code.
  [[nodiscard]] int send(int dest, int tag, MPI_Comm comm) const {
    if (message::has_header(protocol_))
      return sending_.start_with_header(copy_ ? host_copy(copy_) : buffer_, dest, tag, comm, nullptr, false);
    if (buffer_.on_gpu) route_.took("staged");
    return sending_.start_plain(copy_->data, static_cast<MPI_Count>(copy_->bytes),
                                route_.process().library().handles().byte, dest, tag, comm);
  }

  /// What the send reads.
  [[nodiscard]] std::shared_ptr<void> kept() const { return copy_; }

 private:
  Route& route_;
  Sending& sending_;
  const message::Buffer& buffer_;
  const message::Protocol protocol_;
  std::shared_ptr<PackedCopy> copy_;
};

// A send whose arguments were looked at: before the receive is posted, which could not be taken back once it is matched.
class Described {
 public:
  Described(Route& route, const Send& send)
      : route_(route),
        send_(send),
        argument_(route.single(send.buffer_name, send.buffer, send.count_name, send.count, 1, send.type,
                               send.dest == mpi::proc_null ? Direction::none : Direction::in, lane::Form::packed)),
        buffer_(buffer_of(argument_, send.buffer, send.count)) {}

  /// Returns MPI's code.
  [[nodiscard]] int start(Sending& sending, MPI_Comm comm, bool waits) const {
    if (message::has_header(sending.choose(buffer_, send_.dest, {.waits = waits})))
      return sending.start_with_header(buffer_, send_.dest, send_.tag, comm, nullptr, false);
    if (argument_.on_gpu()) route_.took("staged");
    route_.stage_and_fetch();
    return sending.start_plain(argument_.address(), argument_.count(), argument_.type(), send_.dest, send_.tag, comm);
  }

 private:
  Route& route_;
  const Send send_;
  const Argument& argument_;
  const message::Buffer buffer_;
};

// Gives up a receive whose send could not be started; what has come for it is received, since its buffer may be the application's again
// once this is over.
void withdraw(Route& route, MPI_Request& request) {
  if (!route.operation().look->own) route.process().library().below().Cancel(&request);
  static_cast<void>(wait_and_finish(route, &request, mpi::status_ignore()));
}

// The same exchange, but with nobody on either side: MPI has its words for wrong arguments, and the status of who receives nothing. Returns its code.
int with_nobody(const mpi::Functions& next, const Send& send, const Receive& receive, MPI_Status* status) {
  return mpi::calls::Sendrecv(next, send.buffer, send.count, send.type, mpi::proc_null, send.tag, receive.buffer,
                              receive.count, receive.type, mpi::proc_null, receive.tag, receive.comm, status);
}

// An exchange that sends to nobody. Returns MPI's code.
int receive_alone(Route& route, const Send& send, const Receive& receive, const Room& room, bool to_gpu,
                  MPI_Status* status) {
  if (const int code = with_nobody(route.next(), send, receive, mpi::status_ignore()); code != mpi::success)
    return code;
  describe(route, receive, room, to_gpu);
  MPI_Request request{};
  if (const int code = post(route, &request); code != mpi::success) return code;
  return wait_and_finish(route, &request, status);
}

// One that receives from nobody.
int send_alone(Route& route, const Send& send, const Receive& receive, MPI_Status* status) {
  if (const int code = with_nobody(route.next(), send, receive, status); code != mpi::success) return code;
  Sending sending(route.process(), route.next(), route.shared_operation());
  const Described described(route, send);
  if (const int code = described.start(sending, receive.comm, true); code != mpi::success) return code;
  sending.finish();
  return mpi::success;
}

// Whom a send goes to is looked at before the receive beside it is posted: one that is matched cannot be taken back, and its message would be lost to
// whom it is for. Throws Error (rank, tag).
void check_destination(const Route& route, const char* call, int dest, int tag, MPI_Comm comm) {
  const auto& below = route.process().library().below();
  int ranks = 0, between = 0;
  if (below.Comm_test_inter(comm, &between) != mpi::success ||
      (between != 0 ? below.Comm_remote_size(comm, &ranks) : below.Comm_size(comm, &ranks)) != mpi::success)
    return;  // MPI has its own words
  if ((dest < 0 || dest >= ranks) && dest != mpi::proc_null)
    throw base::Error(base::ErrorClass::rank, "{}: dest: {} is no rank of the communicator, which has {}", call, dest,
                      ranks);
  int largest = 32767;  // at least: MPI 5.0, section 9.1.2
  if (tag > largest) {
    const int* bound = nullptr;
    int known = 0;
    const int code = below.Comm_get_attr(comm, mpi::tag_ub, static_cast<void*>(&bound), &known);
    largest = code == mpi::success && known != 0 ? *bound : tag;
  }
  if (tag < 0 || tag > largest)
    throw base::Error(base::ErrorClass::tag, "{}: sendtag: {} is no tag, which are from 0 to {}", call, tag, largest);
}

// Starts the send that goes with a posted receive. Returns MPI's code.
int start_beside(Route& receiving, MPI_Request& request, base::FunctionRef<int()> start) {
  try {
    const int code = start();
    if (code != mpi::success) withdraw(receiving, request);
    return code;
  } catch (...) {
    withdraw(receiving, request);
    throw;
  }
}

// The same where the receive's request becomes the application's.
int go_along(Route& receiving, MPI_Request& request, const std::shared_ptr<Sending>& sending,
             std::shared_ptr<void> kept, base::FunctionRef<int()> start) {
  const int code = start_beside(receiving, request, start);
  if (code != mpi::success) return code;
  Look& look = *receiving.operation().look;
  look.send = sending;
  look.companion = std::move(kept);
  look.send_dest = sending->dest();
  look.send_tag = sending->tag();
  receiving.process().requests().add(request, receiving.shared_operation());
  return mpi::success;
}

// Waits for both halves; an error of one does not keep the other from its end.
int wait_for_both(Route& receiving, Sending& sending, MPI_Request* request, MPI_Status* status) {
  auto& process = receiving.process();
  bool sent = false;
  std::exception_ptr failure;
  const auto both = [&] {
    const engine::Watch watch = receiving.operation().watch();
    std::string text = watch.details == nullptr ? std::string() : watch.details(watch.context);
    if (!sent) text += (text.empty() ? "" : "; and ") + sending.details();
    return text;
  };
  const Waiting waiting{receiving.operation(), both};
  wait_until(
      process,
      [&] {
        if (!sent) {
          try {
            sent = sending.done();
          } catch (...) {
            failure = std::current_exception();
            sent = true;
          }
        }
        look_at(process, receiving.operation(), *request);
        return sent && receiving.operation().look->ready();
      },
      waiting.watch());
  const int result = finish(process, receiving.next(), receiving.operation(), request, status, Ends::blocking);
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace

int manual::sendrecv(const Site& site, const char* call, const void* sendbuf, MPI_Count sendcount,
                     MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf, MPI_Count recvcount,
                     MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"recvbuf", "recvcount", recvbuf, recvcount, recvtype, source, recvtag, comm};
  const bool sends = dest != mpi::proc_null, receives = source != mpi::proc_null;
  const bool from_gpu = sends && site.watching() && site.on_gpu(sendbuf, sendcount, sendtype);
  const bool to_gpu = receives && site.watching() && site.on_gpu(recvbuf, recvcount, recvtype);
  const Room room = room_of(process, receive);
  if (!from_gpu && !to_gpu && (!room.known || is_simple(process, room))) {
    MPI_Status own{};
    MPI_Status* const told = mpi::wanted(status) ? status : &own;
    const bool bytes = room.known && !room.small;
    const int result =
        mpi::calls::Sendrecv(next, sendbuf, sendcount, sendtype, dest, sendtag, bytes ? room.first : recvbuf, recvcount,
                             bytes ? room.type : recvtype, source, recvtag, comm, told);
    return room.known ? look_after(site, call, receive, room, told, result) : result;
  }
  const Target target = Target::of_comm(comm);
  return run_route(process, next, call, target, [&](Route& route) {
    const Send sent{"sendbuf", "sendcount", sendbuf, sendcount, sendtype, dest, sendtag};
    const bool sound = packed_bytes(process, sendcount, sendtype).has_value();
    if (sound && !receives) return send_alone(route, sent, receive, status);
    if (sound && room.known && !sends) return receive_alone(route, sent, receive, room, to_gpu, status);
    if (!room.known || !sound) {
      const auto& out = route.single("sendbuf", sendbuf, "sendcount", sendcount, 1, sendtype, Direction::in,
                                     lane::Form::packed, false);
      const auto& in = route.single("recvbuf", recvbuf, "recvcount", recvcount, 1, recvtype, Direction::out,
                                    lane::Form::packed, true);
      return route.blocking(status, [&](const mpi::Functions& functions, mpi::Narrowed&, MPI_Status* told) {
        return mpi::calls::Sendrecv(functions, out.address(), out.count(), out.type(), dest, sendtag, in.address(),
                                    in.count(), in.type(), source, recvtag, comm, told);
      });
    }
    Route other(process, next, call, target);
    Sending sending(process, next, other.shared_operation());
    const Described send(other, sent);
    route.goes_with(other);
    describe(route, receive, room, to_gpu);
    MPI_Request request{};
    check_destination(route, call, dest, sendtag, comm);
    if (const int code = post(route, &request); code != mpi::success) return code;
    const int code = start_beside(route, request, [&] { return send.start(sending, comm, true); });
    if (code != mpi::success) return code;
    return wait_for_both(route, sending, &request, status);
  });
}

int manual::sendrecv_replace(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype,
                             int dest, int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"buf", "count", buf, count, datatype, source, recvtag, comm};
  const bool sends = dest != mpi::proc_null, receives = source != mpi::proc_null;
  const bool on_gpu = (sends || receives) && site.watching() && site.on_gpu(buf, count, datatype);
  const Room room = room_of(process, receive);
  if (!on_gpu && (!room.known || is_simple(process, room))) {
    MPI_Status own{};
    MPI_Status* const told = mpi::wanted(status) ? status : &own;
    const bool bytes = room.known && !room.small;
    const int result = mpi::calls::Sendrecv_replace(next, bytes ? room.first : buf, count, bytes ? room.type : datatype,
                                                    dest, sendtag, source, recvtag, comm, told);
    return room.known ? look_after(site, call, receive, room, told, result) : result;
  }
  const Target target = Target::of_comm(comm);
  return run_route(process, next, call, target, [&](Route& route) {
    const bool sound = packed_bytes(process, count, datatype).has_value();
    const Send sent{"buf", "count", buf, count, datatype, dest, sendtag};
    if (sound && !receives) return send_alone(route, sent, receive, status);
    if (sound && room.known && !sends) return receive_alone(route, sent, receive, room, on_gpu, status);
    if (!room.known) {
      const auto& argument =
          route.single("buf", buf, "count", count, 1, datatype, Direction::inout, lane::Form::packed, true);
      return route.blocking(status, [&](const mpi::Functions& functions, mpi::Narrowed&, MPI_Status* told) {
        return mpi::calls::Sendrecv_replace(functions, argument.address(), argument.count(), argument.type(), dest,
                                            sendtag, source, recvtag, comm, told);
      });
    }
    Route other(process, next, call, target);
    Sending sending(process, next, other.shared_operation());
    describe(route, receive, room, on_gpu);
    gather(route);
    const Copied copied(other, sending, route.operation().look->buffer, dest, true);
    MPI_Request request{};
    check_destination(route, call, dest, sendtag, comm);
    if (const int code = post(route, &request); code != mpi::success) return code;
    const int code = start_beside(route, request, [&] { return copied.send(dest, sendtag, comm); });
    if (code != mpi::success) return code;
    return wait_for_both(route, sending, &request, status);
  });
}

// The receive's request is the application's; the send goes along with it (Look::send).
int manual::isendrecv(const Site& site, const char* call, const void* sendbuf, MPI_Count sendcount,
                      MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf, MPI_Count recvcount,
                      MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Request* request) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"recvbuf", "recvcount", recvbuf, recvcount, recvtype, source, recvtag, comm};
  const bool to_gpu = site.watching() && site.on_gpu(recvbuf, recvcount, recvtype);
  const Room room = room_of(process, receive);
  const Target target = Target::of_comm(comm);
  return run_route(process, next, call, target, [&](Route& route) {
    // MPI ends the half that is nobody's; the status is that of the receive.
    if (!room.known) {
      const auto& out = route.single("sendbuf", sendbuf, "sendcount", sendcount, 1, sendtype,
                                     dest == mpi::proc_null ? Direction::none : Direction::in, lane::Form::packed);
      const auto& in = route.single("recvbuf", recvbuf, "recvcount", recvcount, 1, recvtype,
                                    source == mpi::proc_null ? Direction::none : Direction::inout, lane::Form::packed);
      return route.nonblocking(request, [&](const mpi::Functions& functions, mpi::Narrowed&) {
        return mpi::calls::Isendrecv(functions, out.address(), out.count(), out.type(), dest, sendtag, in.address(),
                                     in.count(), in.type(), source, recvtag, comm, request);
      });
    }
    Route other(process, next, call, target);
    const auto sending = std::make_shared<Sending>(process, next, other.shared_operation());
    const Described send(other, {"sendbuf", "sendcount", sendbuf, sendcount, sendtype, dest, sendtag});
    route.goes_with(other);
    describe(route, receive, room, to_gpu);
    check_destination(route, call, dest, sendtag, comm);
    if (const int code = post(route, request); code != mpi::success) return code;
    return go_along(route, *request, sending, nullptr, [&] { return send.start(*sending, comm, false); });
  });
}

int manual::isendrecv_replace(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype,
                              int dest, int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Request* request) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"buf", "count", buf, count, datatype, source, recvtag, comm};
  const bool on_gpu = site.watching() && site.on_gpu(buf, count, datatype);
  const Room room = room_of(process, receive);
  return run_route(process, next, call, Target::of_comm(comm), [&](Route& route) {
    if (!room.known) {
      const auto& argument =
          route.single("buf", buf, "count", count, 1, datatype, Direction::inout, lane::Form::packed, false);
      return route.nonblocking(request, [&](const mpi::Functions& functions, mpi::Narrowed&) {
        return mpi::calls::Isendrecv_replace(functions, argument.address(), argument.count(), argument.type(), dest,
                                             sendtag, source, recvtag, comm, request);
      });
    }
    describe(route, receive, room, on_gpu);
    gather(route);
    Route other(process, next, call, Target::of_comm(comm));
    const auto sending = std::make_shared<Sending>(process, next, other.shared_operation());
    const Copied copied(other, *sending, route.operation().look->buffer, dest, false);
    check_destination(route, call, dest, sendtag, comm);
    if (const int code = post(route, request); code != mpi::success) return code;
    return go_along(route, *request, sending, copied.kept(), [&] { return copied.send(dest, sendtag, comm); });
  });
}

}  // namespace crosslane::interpose
