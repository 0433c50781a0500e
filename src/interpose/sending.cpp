// See sending.h; and the sends with GPU memory but the buffered ones (MPI 5.0, sections 3.4, 3.7 and 3.9).
#include "interpose/sending.h"

#include "base/error.h"
#include "base/recycler.h"
#include "interpose/manual.h"
#include "interpose/receive.h"
#include "interpose/starting.h"
#include "interpose/teams.h"
#include "message/header.h"
#include "message/offering.h"
#include "mpi/status.h"

#include <string>
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

message::Buffer buffer_of(const Argument& argument, const void* address, MPI_Count count) {
  message::Buffer buffer;
  buffer.on_gpu = argument.on_gpu() && !argument.apart();
  if (!buffer.on_gpu) return buffer;
  buffer.place = argument.place();
  buffer.seen = argument.seen();
  buffer.address = static_cast<std::byte*>(const_cast<void*>(address));
  buffer.layout = argument.layout();
  buffer.count = count;
  buffer.bytes = argument.bytes();
  return buffer;
}

void look_again(Process& process, message::Buffer& buffer) {
  buffer.seen = process.gpu().inspect(buffer.first());
  if (buffer.seen.on_gpu()) buffer.place = process.copier().place(buffer.seen);
}

// What MPI and the transfer refer to, whatever becomes of the call.
struct Sending::Posted {
  Posted(const message::HeaderMessage& message, MPI_Request none, std::shared_ptr<Operation> of, int to, int with)
      : header(message), request(none), operation(std::move(of)), dest(to), tag(with) {}

  const message::HeaderMessage header;
  MPI_Request request;
  MPI_Status status{};
  const std::shared_ptr<Operation> operation;
  const int dest, tag;
  std::optional<message::Transfers::Offering> offering{};  // the transfer, or
  engine::Completion transfer{};                           // its task,
  engine::Completion matched{};                            // which waits for `request`

  void look() {
    if (offering) offering->look();
  }
  [[nodiscard]] bool over() const noexcept { return offering ? offering->over() : transfer.done(); }
  void rethrow() const { offering ? offering->rethrow() : transfer.rethrow(); }
};

class Sending::Started final : public Undertaking, public base::Recycled {
 public:
  Started(Process& process, std::shared_ptr<Posted> posted) : process_(process), posted_(std::move(posted)) {}

  void look() override { posted_->look(); }
  [[nodiscard]] bool over() const noexcept override { return posted_->over(); }
  void deliver() override {}
  void rethrow() const override { posted_->rethrow(); }
  [[nodiscard]] std::string details() const override { return waits_for_receiver(posted_->dest, posted_->tag); }
  void cancel() override {
    if (over()) return;
    if (posted_->offering) return posted_->offering->cancel();
    posted_->matched.cancel();
    process_.engine().progress();
  }
  [[nodiscard]] MPI_Status status() const override {
    const auto& below = process_.library().below();
    return mpi::cancelled(below, posted_->status) ? posted_->status : mpi::empty_status(below);
  }

 private:
  Process& process_;
  std::shared_ptr<Posted> posted_;
};

Sending::~Sending() {
  if (header_) drop(*header_);
}

void Sending::drop(const message::Header& header) {
  if (packing_ != nullptr) {
    process_.transfers().abandon(packing_);
  } else {
    process_.transfers().close(header);
  }
}

message::Protocol Sending::choose(const message::Buffer& buffer, int dest, Manner manner) {
  const auto& settings = process_.settings();
  message::Envelope envelope{.on_gpu = buffer.on_gpu,
                             .bytes = buffer.bytes,
                             .waits = manner.waits,
                             .threshold = settings.pipeline_bytes,
                             .direct_threshold = settings.direct_bytes,
                             .packed_threshold = settings.packed_bytes};
  const auto* const world = process_.world();
  bool shares_gpu = false;
  int peer = -1;
  // The length first: it costs nothing.
  if (buffer.on_gpu && buffer.bytes >= message::token_bytes && dest >= 0 && world != nullptr && world->agreed() &&
      operation_->communicator != nullptr) {
    peer = operation_->communicator->world_rank(dest);
    envelope.to_self = peer == world->rank();
    envelope.peer_looks = world->looks_at_receives(peer);
    auto* const peers = process_.transfers().peers();
    const bool offers = envelope.peer_looks && peers != nullptr && buffer.bytes >= settings.direct_bytes;
    if (auto* const home = offers ? process_.teams()->home_at(buffer.place) : nullptr) {
      peers->prepare_to_send();
      envelope.window = settings.message_window != 0 && buffer.place.context == home->context();
      // What is irregular may have a list: the offer tells.
      envelope.regular = !manner.copies && (!envelope.to_self || buffer.layout->contiguous(buffer.count) ||
                                            buffer.layout->as_strided(buffer.count));
      envelope.peer_reads = peers->is_met(peer);
      envelope.late = envelope.peer_reads && peers->comes_late(peer, buffer.bytes);
      if (envelope.peer_reads && !envelope.to_self)
        process_.teams()->pass_elsewhere(*home, buffer.place.context, buffer.place.device, operation_->call);
      envelope.token = message::takes_token(buffer.bytes) && !envelope.to_self && peers->takes_tokens(peer) &&
                       buffer.layout->contiguous(buffer.count);
      envelope.turns = peers->takes_turns_with(peer);
      shares_gpu = peers->shares_gpu_with(peer);
    }
  }
  message::Protocol protocol = message::choose(envelope);
  using Taste = message::Transfers::Taste;
  if (protocol == message::Protocol::direct && envelope.token) {
    header_ = process_.transfers().offer_with_token(buffer, peer);
    return header_ ? protocol : message::Protocol::staged;
  }
  const bool lies_ready = protocol == message::Protocol::direct;
  if (lies_ready) {
    // Where it could be packed, and what is read comes over the links.
    envelope.regular = false;
    protocol = message::choose(envelope);
    const bool choosy = protocol == message::Protocol::packed && !envelope.to_self && !shares_gpu;
    header_ = process_.transfers().offer(buffer, choosy ? Taste::choosy : Taste::any);
    if (header_) return message::Protocol::direct;
  }
  if (protocol == message::Protocol::packed) {
    header_ = process_.transfers().reserve(buffer.bytes);
    if (header_ && (!manner.copies || message::Transfers::returns_unmatched(*header_))) return protocol;
    if (header_) drop(*std::exchange(header_, std::nullopt));
    if (lies_ready) header_ = process_.transfers().offer(buffer, Taste::any);
    if (header_) return message::Protocol::direct;
    envelope.window = false;  // it is full, or too small for a copy
    protocol = message::choose(envelope);
  }
  if (protocol != message::Protocol::chunked) return protocol;
  header_ = process_.transfers().open(buffer.bytes);
  return header_ ? protocol : message::Protocol::staged;
}

void Sending::pack(const message::Buffer& buffer) {
  const auto header = std::exchange(header_, std::nullopt);  // closed where that throws
  packing_ = process_.transfers().pack(buffer, *header, operation_->watch());
  header_ = header;
}

void Sending::copy(const message::Buffer& buffer) {
  pack(buffer);
  process_.transfers().finish_packing(packing_, operation_->watch());
}

int Sending::start_with_header(message::Buffer buffer, int dest, int tag, MPI_Comm comm, Procedure seen,
                               bool synchronous) {
  const auto& below = process_.library().below();
  auto& transfers = process_.transfers();
  const auto protocol = message::protocol_of(*header_);
  process_.took_route(operation_->call, message::name_of(protocol), buffer.bytes);
  if (protocol == message::Protocol::packed && packing_ == nullptr) pack(buffer);
  if (protocol == message::Protocol::direct) process_.copier().settle(buffer.place, operation_->watch());
  posted_ = std::allocate_shared<Posted>(base::RecyclingAllocator<Posted>{}, message::encode(*header_),
                                         process_.library().handles().request_null, operation_, dest, tag);
  dest_ = dest;
  tag_ = tag;
  const auto bytes = static_cast<int>(header_->token != 0 ? header_->bytes : posted_->header.size());
  const auto byte = process_.library().handles().byte;
  const bool shown = next_.Send != below.Send && seen != nullptr;
  const bool returns = !synchronous && message::Transfers::returns_unmatched(*header_);
  const auto patience = seen != nullptr ? message::Transfers::waiting_patience : message::Transfers::started_patience;
  // Synchronous in each mode, unless the buffer is free without a receiver, or the payload so short that nobody waits for one: until
  // it is matched, waiting is the application's own; after that it is ours: the receiver may wait for this rank. To a tool it has to
  // be the application's call, and counts as matched.
  const int code = shown ? seen(next_, posted_->header.data(), bytes, byte, dest, tag, comm)
                         : start_request(process_, &posted_->request, [&] {
                             const auto send = returns ? below.Isend : below.Issend;
                             return send(posted_->header.data(), bytes, byte, dest, tag, comm, &posted_->request);
                           });
  if (code != mpi::success) return code;  // and the header is dropped
  const int peer = operation_->communicator->world_rank(dest);
  MPI_Status* const status = shown ? nullptr : &posted_->status;
  const auto watch = operation_->watch();
  if (protocol == message::Protocol::direct) {
    posted_->offering.emplace(transfers, std::move(buffer), *header_, peer, shown ? nullptr : &posted_->request, status,
                              returns ? std::optional(patience) : std::nullopt, watch);
    header_.reset();  // it is the offering's
    posted_->offering->start(posted_, seen == nullptr);
    return mpi::success;
  }
  const message::Header header = *std::exchange(header_, std::nullopt);
  if (!shown) posted_->matched = engine::Completion::of(&posted_->request, status);
  posted_->transfer = process_.engine().spawn(
      packing_ != nullptr
          ? transfers.send_packed(std::exchange(packing_, nullptr), peer, posted_->matched, status, watch, posted_)
          : transfers.send(std::move(buffer), header, peer, posted_->matched, watch, posted_));
  return mpi::success;
}

int Sending::start_plain(const void* address, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  plain_ = true;
  dest_ = dest;
  tag_ = tag;
  return start_request(process_, &request_,
                       [&] { return mpi::calls::Isend(next_, address, count, type, dest, tag, comm, &request_); });
}

bool Sending::done() {
  if (plain_) {
    int flag = 0;
    const auto& below = process_.library().below();
    team::check(below, below.Test(&request_, &flag, mpi::status_ignore()), "MPI_Isend");
    plain_ = flag == 0;
    return flag != 0;
  }
  posted_->look();
  if (!posted_->over()) return false;
  posted_->rethrow();
  return true;
}

void Sending::finish() {
  const auto told = [&] { return details(); };
  const Waiting waiting{*operation_, told};
  wait_until(process_, [&] { return done(); }, waiting.watch());
}

namespace {

// Decides at each start of a persistent send.
class PersistentSend final : public Starter {
 public:
  PersistentSend(message::Buffer buffer, int dest, int tag, MPI_Comm comm, manual::Mode mode,
                 std::weak_ptr<Operation> operation)
      : buffer_(std::move(buffer)), dest_(dest), tag_(tag), comm_(comm), mode_(mode), operation_(std::move(operation)) {
    buffer_.seen = {};  // the memory may be another one by then
  }

  int start(const Site& site, std::unique_ptr<Undertaking>& undertaking) override {
    const auto operation = operation_.lock();
    // A communicator that was freed is known to MPI's request alone.
    if (operation->communicator == nullptr || operation->communicator->freed.load(std::memory_order_acquire))
      return mpi::success;
    if (buffer_.on_gpu && std::exchange(started_, true)) look_again(site.process(), buffer_);
    Sending sending(site.process(), site.next(), operation);
    if (!message::has_header(sending.choose(buffer_, dest_, {.waits = false}))) return mpi::success;
    const bool synchronous = mode_ == manual::Mode::synchronous;
    const int code = sending.start_with_header(buffer_, dest_, tag_, comm_, nullptr, synchronous);
    if (code == mpi::success) undertaking = sending.undertaking();
    return code;
  }

 private:
  message::Buffer buffer_;
  const int dest_, tag_;
  const MPI_Comm comm_;
  const manual::Mode mode_;
  const std::weak_ptr<Operation> operation_;
  bool started_ = false;  // once
};

}  // namespace

std::unique_ptr<Undertaking> Sending::undertaking() { return std::make_unique<Started>(process_, std::move(posted_)); }

int manual::send(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
                 int dest, int tag, MPI_Comm comm) {
  auto& process = site.process();
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    const auto& argument =
        route.single("buf", buf, "count", count, 1, datatype, Direction::in, lane::Form::packed, false);
    Sending sending(process, site.next(), route.shared_operation());
    const Sending::Procedure procedure = mode == Mode::synchronous ? mpi::calls::Ssend
                                         : mode == Mode::ready     ? mpi::calls::Rsend
                                                                   : mpi::calls::Send;
    message::Buffer buffer = buffer_of(argument, buf, count);
    if (message::has_header(sending.choose(buffer, dest, {}))) {
      process.settle(false);
      const int code =
          sending.start_with_header(std::move(buffer), dest, tag, comm, procedure, mode == Mode::synchronous);
      if (code == mpi::success) sending.finish();
      return code;
    }
    return route.blocking(mpi::status_ignore(), [&](const mpi::Functions& next, mpi::Narrowed&, MPI_Status*) {
      return procedure(next, argument.address(), argument.count(), argument.type(), dest, tag, comm);
    });
  });
}

int manual::isend(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count,
                  MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request* request) {
  auto& process = site.process();
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    const auto& argument =
        route.single("buf", buf, "count", count, 1, datatype, Direction::in, lane::Form::packed, false);
    auto& operation = route.operation();
    Sending sending(process, site.next(), route.shared_operation());
    message::Buffer buffer = buffer_of(argument, buf, count);
    const std::size_t bytes = buffer.bytes;
    if (message::has_header(sending.choose(buffer, dest, {.waits = false}))) {
      process.settle(false);
      route.drop_arguments();
      // First: what is under way has to have a request.
      if (const int code = lend_idle_request(process, request); code != mpi::success) return code;
      int code = mpi::success;
      try {
        code = sending.start_with_header(std::move(buffer), dest, tag, comm, nullptr, mode == Mode::synchronous);
      } catch (...) {
        take_back_idle_request(process, request);
        throw;
      }
      if (code != mpi::success) {
        take_back_idle_request(process, request);
        return code;
      }
      operation.undertaking = sending.undertaking();
      operation.active = true;
      route.keep_with(*request);
      process.awaited().look(process, Awaited::Begun::send, bytes);
      return mpi::success;
    }
    return route.nonblocking(request, [&](const mpi::Functions& next, mpi::Narrowed&) {
      const auto procedure = mode == Mode::synchronous ? mpi::calls::Issend
                             : mode == Mode::ready     ? mpi::calls::Irsend
                                                       : mpi::calls::Isend;
      return procedure(next, argument.address(), argument.count(), argument.type(), dest, tag, comm, request);
    });
  });
}

int manual::send_init(const Site& site, const char* call, Mode mode, const void* buf, MPI_Count count,
                      MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request* request) {
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    const auto& argument =
        route.single("buf", buf, "count", count, 1, datatype, Direction::in, lane::Form::packed, false);
    const message::Buffer buffer = buffer_of(argument, buf, count);
    const auto operation = route.shared_operation();
    const int code = route.persistent(request, [&](const mpi::Functions& next, mpi::Narrowed&) {
      const auto procedure = mode == Mode::synchronous ? mpi::calls::Ssend_init
                             : mode == Mode::ready     ? mpi::calls::Rsend_init
                                                       : mpi::calls::Send_init;
      return procedure(next, argument.address(), argument.count(), argument.type(), dest, tag, comm, request);
    });
    if (code == mpi::success && buffer.on_gpu)
      operation->starter = std::make_unique<PersistentSend>(buffer, dest, tag, comm, mode, operation);
    return code;
  });
}

}  // namespace crosslane::interpose
