// See receive.h.
#include "interpose/receive.h"

#include "base/error.h"
#include "interpose/manual.h"
#include "interpose/query.h"
#include "interpose/sending.h"
#include "interpose/starting.h"
#include "interpose/teams.h"
#include "interpose/undertaking.h"
#include "message/protocols.h"
#include "mpi/returns_errors.h"
#include "mpi/status.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace crosslane::interpose {
namespace {

using message::header_bytes;

void deliver_bytes(Process& process, Operation& operation, const message::HeaderMessage& bytes) {
  const auto& buffer = operation.look->buffer;
  const std::size_t fits = std::min(buffer.bytes, header_bytes);
  if (fits == 0) return;
  if (!buffer.on_gpu) {
    buffer.layout->unpack(buffer.address, bytes.data(), buffer.count, 0, fits);
    if (operation.look->apart) operation.deliver(process.copier(), &operation.look->status, process.library().below());
    return;
  }
  lane::Batch batch(process.copier(), operation.watch());
  batch.to_gpu(buffer.place, buffer.address, bytes.data(), *buffer.layout, buffer.count, 0, fits, lane::Form::packed);
  batch.wait();
}

std::exception_ptr truncated(const char* call, std::size_t bytes, std::size_t room) {
  return std::make_exception_ptr(base::Error(base::ErrorClass::truncate,
                                             "{}: the message has {} bytes, and the buffer has room for {}; receive it "
                                             "into a larger one",
                                             call, bytes, room));
}

// What was no header came by the MPI.
void count_staged(Process& process, const Operation& operation) {
  const auto& look = *operation.look;
  if (look.buffer.on_gpu || look.apart) process.took_route(operation.call, "staged", look.buffer.bytes);
}

// A message that MPI no longer has: its bytes, or a header.
void take_over(Process& process, Operation& operation, const message::Arrived& arrived) {
  Look& look = *operation.look;
  look.own = true;
  if (arrived.header) {
    fetch(process, operation, *arrived.header, arrived.status);
    return;
  }
  look.status = arrived.status;
  count_staged(process, operation);
  deliver_bytes(process, operation, arrived.bytes);
  if (look.buffer.bytes < header_bytes) {
    mpi::set_received_bytes(process.library().below(), look.status, static_cast<MPI_Count>(look.buffer.bytes));
    look.error = truncated(operation.call, header_bytes, look.buffer.bytes);
  }
  look.state = Look::State::fetched;
}

// MPICH 5.0's MPI_Request_get_status ends a persistent request without a word of what went wrong; Open MPI's MPI_Test frees one that
// fails.
constexpr bool tests_persistent = std::string_view(mpi::family) != "openmpi";

// MPI has completed an ordinary message of a persistent receive, and raised what went wrong.
void end_persistent(Process& process, Operation& operation, int code, const MPI_Status& status) {
  Look& look = *operation.look;
  const auto& below = process.library().below();
  look.code = code;
  look.status = status;
  look.state = Look::State::fetched;
  count_staged(process, operation);
  if (code != mpi::success && !mpi::is_truncation(below, code)) return;
  try {
    operation.deliver(process.copier(), &look.status, below);
  } catch (...) {
    look.error = std::current_exception();  // the completion call's to raise, which this may not be
  }
}

/// The call that comes upon a message may be another one than what receives it, whose error it is.
template <class Begin>
void or_fetched_in_vain(Look& look, Begin&& begin) {
  try {
    begin();
  } catch (...) {
    look.error = std::current_exception();
    look.state = Look::State::fetched;
  }
}

// A message that MPI held for a persistent receive.
void look_at_inner(Process& process, Operation& operation) {
  Look& look = *operation.look;
  int flag = 0;
  MPI_Status status{};
  const int code = process.library().below().Test(&look.inner, &flag, &status);
  if (code == mpi::success && flag == 0) return;
  look.has_inner = false;
  const auto header = code == mpi::success ? header_in(process, look.landing, look.buffer.bytes, status) : std::nullopt;
  if (header)
    or_fetched_in_vain(look, [&] { fetch(process, operation, *header, status); });
  else
    end_persistent(process, operation, code, status);
}

void finish_fetch(Process& process, Operation& operation) {
  Look& look = *operation.look;
  message::Received received;
  try {
    if (look.reading != nullptr) {
      received = process.receiver().finish_reading(*look.reading);
    } else {
      received = *look.received;
      look.pull.rethrow();
    }
    mpi::set_received_bytes(process.library().below(), look.status, static_cast<MPI_Count>(received.bytes));
    if (look.apart) operation.deliver(process.copier(), &look.status, process.library().below());
    if (received.failed) {
      look.error = std::make_exception_ptr(
          base::Error(base::ErrorClass::other,
                      "{}: rank {} of MPI_COMM_WORLD could not read the GPU buffer that it sends; its own "
                      "error says why",
                      operation.call, look.sender));
    } else if (received.truncated) {
      look.error = truncated(operation.call, look.payload, look.buffer.bytes);
    }
  } catch (...) {
    mpi::set_received_bytes(process.library().below(), look.status, static_cast<MPI_Count>(received.bytes));
    look.error = std::current_exception();
  }
  look.state = Look::State::fetched;
  look.reading.reset();
  look.received.reset();
  look.pull = {};
}

// A GPU that has failed never tells of its end.
void look_for_failure(Process& process, Look& look) {
  constexpr unsigned seldom = 1024;
  if (look.reading != nullptr && ++look.looks % seldom == 0) process.receiver().look_for_failure(*look.reading);
}

// Of host copies for messages that will most likely not need them, those from this size on are not pinned, which costs a quarter of a
// millisecond for each MiB, and keeps the memory.
constexpr std::size_t pinned_anyway = std::size_t{64} << 10;

// Ranks that this one receives GPU memory from learn whether it can open theirs. Says what memory the message is to land in.
Argument::Staging meet(Process& process, const Operation& operation, int source, const message::Buffer& buffer) {
  auto* const peers = process.transfers().peers();
  if (peers == nullptr || operation.communicator == nullptr || process.teams()->home_at(buffer.place) == nullptr)
    return Argument::Staging::pinned;
  if (source == mpi::any_source) {
    peers->meet(mpi::any_source, process.take_tokens());
    return Argument::Staging::pinned;
  }
  const int sender = operation.communicator->world_rank(source);
  peers->meet(sender, process.take_tokens());
  return buffer.bytes >= pinned_anyway && peers->sends_headers(sender) ? Argument::Staging::ordinary
                                                                       : Argument::Staging::pinned;
}

// The next receive from there will want a host copy, or none.
void remember_how_it_came(Process& process, const Operation& operation, bool whole) {
  auto* const peers =
      process.looks() ? process.transfers().peers() : nullptr;  // null, too, where MPI is being finalized
  const Look& look = *operation.look;
  if (peers == nullptr || !look.buffer.on_gpu || look.buffer.bytes < pinned_anyway || look.source == mpi::any_source)
    return;
  peers->came_whole(operation.communicator->world_rank(look.source), whole);  // its handle may be freed
}

}  // namespace

Room room_of(Process& process, const Receive& receive) noexcept {
  Room room;
  if (receive.count < 0 || receive.source == mpi::proc_null) return room;
  try {
    room.layout = process.layouts().of(receive.type);
    room.known = true;
    // There may be room for more than there can be.
    if (__builtin_mul_overflow(room.layout->size(), static_cast<std::size_t>(receive.count), &room.bytes))
      room.bytes = std::numeric_limits<std::ptrdiff_t>::max();
    room.small = room.bytes < process.least_looked_at();
    room.dense = room.layout->dense();
    room.first = lane::byte_at(receive.buffer, static_cast<std::ptrdiff_t>(room.layout->true_lb()));
    room.type = room.small || !room.dense ? receive.type : process.layouts().packed_twin(receive.type);
  } catch (const std::exception&) {
    room.known = false;  // the MPI has its own words for such a type
  }
  return room;
}

// Of a message that was cut Open MPI tells the whole length, and MPI_Request_get_status no error.
std::optional<message::Header> header_in(Process& process, const std::byte* landing, std::size_t room,
                                         const MPI_Status& status) {
  if (!process.looks()) return std::nullopt;
  const auto bytes = static_cast<std::size_t>(mpi::received_bytes(process.library().below(), status));
  if (bytes > room) return std::nullopt;
  if (bytes == header_bytes) return message::decode({landing, bytes}, process.world()->cookie());
  if (bytes < process.least_looked_at() || !message::takes_token(bytes)) return std::nullopt;
  return process.transfers().peers()->tokens().read({landing, bytes});
}

namespace {

// The host copy stands for such a buffer, whatever comes for it.
void describe_apart(Process& process, Operation& operation, const Receive& receive, const Argument& argument) {
  Look& look = *operation.look;
  operation.stage(process.copier());
  look.apart = true;
  look.buffer.address = static_cast<std::byte*>(argument.address());
  look.buffer.layout = process.layouts().of(process.library().handles().byte);
  look.buffer.bytes = argument.bytes();
  look.buffer.count = static_cast<MPI_Count>(argument.bytes());
  look.address = argument.address();
  look.landing = look.buffer.address;
  look.count = argument.count();
  look.type = process.layouts().packed_twin(receive.type);
}

}  // namespace

void describe(Route& route, const Receive& receive, const Room& room, bool on_gpu, bool lasting) {
  auto& process = route.process();
  const Argument* argument = nullptr;
  if (on_gpu || !room.known) {
    if (room.known) route.has_layout(room.layout);
    argument = &route.single(receive.buffer_name, receive.buffer, receive.count_name, receive.count, 1, receive.type,
                             Direction::out, lane::Form::packed, true);
  }
  auto& operation = route.operation();
  operation.look = std::make_unique<Look>();
  Look& look = *operation.look;
  look.comm = receive.comm;
  look.source = receive.source;
  look.tag = receive.tag;
  if (argument != nullptr && argument->apart()) return describe_apart(process, operation, receive, *argument);
  look.buffer.on_gpu = argument != nullptr && argument->on_gpu();
  if (look.buffer.on_gpu) look.buffer.place = argument->place();
  look.buffer.address = static_cast<std::byte*>(receive.buffer);
  look.buffer.layout = room.known ? room.layout : process.layouts().of(receive.type);
  look.buffer.count = receive.count;
  look.buffer.bytes = look.buffer.layout->packed_size(receive.count);
  look.address = receive.buffer;
  look.count = receive.count;
  look.type = receive.type;
  // MPI is given bytes without holes: what arrives may be a header, which ends inside an element, and MPICH takes that
  // for no other type.
  const bool dense = look.buffer.layout->dense();
  if (look.buffer.on_gpu) {
    const Argument::Staging staging = meet(process, operation, receive.source, look.buffer);
    operation.stage(process.copier(), lasting ? Argument::Staging::pinned : staging);
    look.address = argument->address();
  } else if (!dense && look.buffer.bytes != 0) {
    look.temp.reset(static_cast<std::byte*>(std::malloc(look.buffer.bytes)));
    if (!look.temp) throw std::bad_alloc();
    look.address = look.temp.get();
  }
  if (dense && look.buffer.bytes != 0)
    look.address = lane::byte_at(look.address, static_cast<std::ptrdiff_t>(look.buffer.layout->true_lb()));
  if (look.buffer.bytes != 0)
    look.type = room.known && dense && !room.small ? room.type : process.layouts().packed_twin(receive.type);
  look.landing = static_cast<const std::byte*>(look.address);
}

int post(Route& route, MPI_Request* request) {
  auto& process = route.process();
  auto& operation = route.operation();
  Look& look = *operation.look;
  operation.active = true;
  look.forget_landing();
  auto lock = process.gate();
  if (!process.unexpected().empty()) {
    if (const auto arrived = process.unexpected().take(operation.communicator.get(), look.source, look.tag)) {
      if (lock) lock.unlock();
      return match(process, route.next(), operation, arrived, request);
    }
  }
  return start_request(process, request, [&] {
    return mpi::calls::Irecv(route.next(), look.address, look.count, look.type, look.source, look.tag, look.comm,
                             request);
  });
}

int match(Process& process, const mpi::Functions& next, Operation& operation, const message::ArrivedPointer& arrived,
          MPI_Request* request) {
  const Look& look = *operation.look;
  operation.active = true;
  if (arrived->held) {
    return start_request(process, request, [&] {
      return mpi::calls::Imrecv(next, look.address, look.count, look.type, &arrived->message, request);
    });
  }
  const int code = lend_idle_request(process, request);  // what it stands for is ended by finish()
  if (code == mpi::success) take_over(process, operation, *arrived);
  return code;
}

bool match_started(Process& process, Operation& operation) {
  Look& look = *operation.look;
  look.restart();
  look.forget_landing();
  if (look.buffer.on_gpu && std::exchange(look.started, true)) {
    look_again(process, look.buffer);
    look.buffer.seen = {};  // it may be received in another call
  }
  // The sender may have had no GPU when the request was made.
  if (look.buffer.on_gpu) static_cast<void>(meet(process, operation, look.source, look.buffer));
  operation.delivered = false;
  if (process.unexpected().empty()) return false;
  const auto arrived = process.unexpected().take(operation.communicator.get(), look.source, look.tag);
  if (!arrived) return false;
  if (!arrived->held) {
    or_fetched_in_vain(look, [&] { take_over(process, operation, *arrived); });
    return true;
  }
  // The persistent request stays inactive in MPI; the message is received by a request of its own.
  look.own = true;
  look.has_inner = true;
  const auto& below = process.library().below();
  team::check(below, mpi::calls::Imrecv(below, look.address, look.count, look.type, &arrived->message, &look.inner),
              "MPI_Imrecv");
  return true;
}

namespace {

void begin_fetch(Process& process, Operation& operation, const message::Header& header,
                 message::Receiver::Gathering* gathering) {
  Look& look = *operation.look;
  const engine::Watch watch{.call = operation.call};
  auto& receiver = process.receiver();
  auto reading = receiver.begin_reading(header, look.buffer, watch, gathering);
  const auto route = message::Receiver::route_of(header, reading);
  if (message::Receiver::reads_by_itself(reading)) {
    look.pull = message::Receiver::end_of(*reading);
    look.reading = std::move(reading);
  } else {
    const auto held = reading;
    try {
      look.received = std::make_shared<message::Received>();
      look.pull = process.engine().spawn(receiver.pull(header, look.buffer, look.received, std::move(reading), watch));
    } catch (...) {
      if (held != nullptr) receiver.fail(*held, std::current_exception());
      throw;
    }
  }
  process.took_route(operation.call, route, header.bytes);
}

}  // namespace

void fetch(Process& process, Operation& operation, const message::Header& header, const MPI_Status& status,
           message::Receiver::Gathering* gathering) {
  Look& look = *operation.look;
  look.status = status;
  look.sender = header.sender;
  look.payload = header.bytes;
  if (look.buffer.on_gpu && !look.buffer.place.settled()) {
    look.header = std::make_unique<const message::Header>(header);
    look.state = Look::State::put_off;
    return;
  }
  begin_fetch(process, operation, header, gathering);
  look.state = Look::State::pulling;
}

void advance(Process& process, Operation& operation, MPI_Request request) {
  look_at(process, operation, request);
  if (operation.look->ready() || !process.engine().progress()) return;
  look_at(process, operation, request);
}

void look_at(Process& process, Operation& operation, MPI_Request request, message::Receiver::Gathering* gathering) {
  Look& look = *operation.look;
  const auto& below = process.library().below();
  if (look.send != nullptr) {
    try {
      if (look.send->done()) look.send.reset();
    } catch (...) {
      look.send_error = std::current_exception();
      look.send.reset();
    }
  }
  if (look.state == Look::State::posted && !look.own) {
    int flag = 0;
    MPI_Status status{};
    const bool tested = operation.persistent && tests_persistent;
    const int code = tested ? below.Test(&request, &flag, &status) : query(process, request, &flag, &status);
    if (code == mpi::success && flag == 0) return;
    // An error of a query is the completion call's to report. Of a cancelled receive MPICH tells any length.
    // Of one whose request was freed the application may know by other messages that it is there, and have freed the memory: then it was
    // an ordinary one.
    bool could =
        code == mpi::success && look.buffer.bytes >= process.least_looked_at() && !mpi::cancelled(below, status);
    message::HeaderMessage copy;
    const std::byte* landing = look.landing;
    if (could && look.left) {
      could = gpu::Gpu::read_by_cpu(copy.data(), landing, std::min(copy.size(), look.buffer.bytes));
      landing = copy.data();
    }
    const auto header = could ? header_in(process, landing, look.buffer.bytes, status) : std::nullopt;
    remember_how_it_came(process, operation, !header);
    if (header) {
      or_fetched_in_vain(look, [&] { fetch(process, operation, *header, status, gathering); });
    } else if (tested) {
      end_persistent(process, operation, code, status);
    } else {
      look.state = Look::State::plain;
      look.fails = code != mpi::success;
      count_staged(process, operation);
    }
  }
  if (look.has_inner) look_at_inner(process, operation);
  if (look.state == Look::State::put_off) {
    if (!look.buffer.place.settled()) return;
    const auto header = std::move(look.header);
    or_fetched_in_vain(look, [&] {
      begin_fetch(process, operation, *header, gathering);
      look.state = Look::State::pulling;
    });
  }
  if (look.state != Look::State::pulling) return;
  if (look.reading != nullptr) process.receiver().urge(look.reading);
  if (!look.pull.done()) look_for_failure(process, look);
  if (look.pull.done()) finish_fetch(process, operation);
}

namespace {

/// While it lives other ranks may count on this one to see what they ask of its sends.
class Attention {
 public:
  explicit Attention(Process& process) noexcept
      : transfers_(process.looks() && process.transfers().peers() != nullptr ? &process.transfers() : nullptr),
        directory_(transfers_ != nullptr ? &process.world()->directory() : nullptr),
        attending_(transfers_ != nullptr ? process.attended() : nullptr) {
    if (directory_ != nullptr) directory_->begin_wait();
  }
  ~Attention() {
    if (directory_ != nullptr) directory_->end_wait();
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// To be called all the time.
  void look() const {
    if (transfers_ != nullptr) transfers_->look_if_asked();
    attending_.look();
  }

 private:
  message::Transfers* const transfers_;
  share::Directory* const directory_;
  const message::Receiver::Attending attending_;
};

}  // namespace

// With several threads a request is the affair of the one that completes it.
void look_around(Process& process) {
  if (!process.looks() || process.multiple() || process.requests().empty()) return;
  for (const auto& [request, operation] : process.requests().some_looks()) look_at(process, *operation, request);
}

void wait_until(Process& process, base::FunctionRef<bool()> done, const engine::Watch& watch) {
  const Attention attention(process);
  constexpr unsigned seldom = 32;
  unsigned turn = 0;
  process.engine().until(
      [&] {
        if (done()) return true;
        attention.look();
        if (++turn % seldom == 0) look_around(process);
        return false;
      },
      watch);
}

namespace {

// MPICH 4.0 raises what a request meets on MPI_COMM_WORLD: what a blocking call meets belongs to its communicator.
int complete_blocking(Process& process, const mpi::Functions& next, const Operation& operation, MPI_Request* request,
                      MPI_Status* status) {
  if (!operation.look->fails || process.multiple()) return next.Wait(request, status);
  const auto& below = process.library().below();
  const Target target = operation.raised_on();
  int code = mpi::success;
  {
    const mpi::ReturnsErrorsOfRequests returns(below);
    std::optional<mpi::ReturnsErrors> own;
    if (target.kind == Target::Kind::comm) own.emplace(below, target.comm);
    code = next.Wait(request, status);
  }
  if (code != mpi::success) call_handler(process, target, code);
  return code;
}

}  // namespace

int finish(Process& process, const mpi::Functions& next, Operation& operation, MPI_Request* request, MPI_Status* status,
           Ends ends) {
  Look& look = *operation.look;
  int result = mpi::success;
  MPI_Status own{};
  if (look.own) {
    if (!operation.persistent) take_back_idle_request(process, request);
  } else if (ends == Ends::blocking) {
    result = complete_blocking(process, next, operation, request, &own);
  } else {
    result = next.Wait(request, &own);  // a tool is to see it, even where a persistent one is over
  }
  operation.active = false;
  if (look.state == Look::State::plain) {
    mpi::copy_but_error(own, status);
    if (result == mpi::success || mpi::is_truncation(process.library().below(), result))
      operation.deliver(process.copier(), &own, process.library().below());
    operation.delivered = false;
    if (look.send_error) std::rethrow_exception(std::exchange(look.send_error, nullptr));
    return result;
  }
  mpi::copy_but_error(look.status, status);
  for (auto* const error : {&look.error, &look.send_error})
    if (*error) std::rethrow_exception(std::exchange(*error, nullptr));
  return look.code != mpi::success ? look.code : result;
}

int wait_and_finish(Route& route, MPI_Request* request, MPI_Status* status) {
  auto& process = route.process();
  auto& operation = route.operation();
  wait_until(
      process,
      [&] {
        look_at(process, operation, *request);
        return operation.look->ready();
      },
      operation.watch());
  return finish(process, route.next(), operation, request, status, Ends::blocking);
}

bool is_simple(Process& process, const Room& room) {
  return (room.small || room.dense) && process.unexpected().empty() && !process.multiple();
}

int look_after(const Site& site, const char* call, const Receive& receive, const Room& room, MPI_Status* told,
               int result) {
  if (result != mpi::success || room.small) return result;
  auto& process = site.process();
  const Target target = Target::of_comm(receive.comm);
  std::optional<message::Header> header;
  const int code = raising(process, target, call, [&] {
    header = header_in(process, room.first, room.bytes, *told);
    return mpi::success;
  });
  if (code != mpi::success || !header) return code;
  return run_route(site, call, target, [&](Route& route) {
    describe(route, receive, room, false);
    MPI_Request none = process.library().handles().request_null;
    route.operation().look->own = true;
    route.operation().persistent = true;  // there is no request to free
    fetch(process, route.operation(), *header, *told);
    return wait_and_finish(route, &none, told);
  });
}

const Argument& staged_receive(Route& route, void* buf, MPI_Count count, MPI_Datatype datatype) {
  return route.single("buf", buf, "count", count, 1, datatype, Direction::out, lane::Form::packed, true);
}

int manual::recv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
                 int tag, MPI_Comm comm, MPI_Status* status) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"buf", "count", buf, count, datatype, source, tag, comm};
  const bool on_gpu = site.watching() && site.on_gpu(buf, count, datatype);
  const Room room = room_of(process, receive);
  if (!on_gpu && !room.known) return mpi::calls::Recv(next, buf, count, datatype, source, tag, comm, status);
  if (!on_gpu && is_simple(process, room)) {
    if (room.small) return mpi::calls::Recv(next, buf, count, datatype, source, tag, comm, status);
    MPI_Status own{};
    MPI_Status* const told = mpi::wanted(status) ? status : &own;
    const int result = mpi::calls::Recv(next, room.first, count, room.type, source, tag, comm, told);
    return look_after(site, call, receive, room, told, result);
  }
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    if (!room.known) {
      const Argument& argument = staged_receive(route, buf, count, datatype);
      return route.blocking(status, [&](const mpi::Functions& functions, mpi::Narrowed&, MPI_Status* told) {
        return mpi::calls::Recv(functions, argument.address(), argument.count(), argument.type(), source, tag, comm,
                                told);
      });
    }
    process.settle(false);
    describe(route, receive, room, on_gpu);
    auto& operation = route.operation();
    // Nobody may free it before this call returns.
    if (operation.look->buffer.on_gpu) operation.look->buffer.seen = operation.arguments.front().seen();
    MPI_Request request{};
    if (const int code = post(route, &request); code != mpi::success) return code;
    return wait_and_finish(route, &request, status);
  });
}

int manual::irecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
                  int tag, MPI_Comm comm, MPI_Request* request) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"buf", "count", buf, count, datatype, source, tag, comm};
  const bool on_gpu = site.watching() && site.on_gpu(buf, count, datatype);
  const Room room = room_of(process, receive);
  const bool simple = room.small && process.unexpected().empty() && !process.multiple();
  if (!on_gpu && (!room.known || simple)) {
    process.leave_to_mpi(room.bytes);
    return mpi::calls::Irecv(next, buf, count, datatype, source, tag, comm, request);
  }
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    if (!room.known) {
      const Argument& argument = staged_receive(route, buf, count, datatype);
      return route.nonblocking(request, [&](const mpi::Functions& functions, mpi::Narrowed&) {
        return mpi::calls::Irecv(functions, argument.address(), argument.count(), argument.type(), source, tag, comm,
                                 request);
      });
    }
    process.settle(false);
    describe(route, receive, room, on_gpu);
    if (const int code = post(route, request); code != mpi::success) return code;
    std::weak_ptr<Operation> operation = route.shared_operation();
    route.keep_with(*request);
    process.awaited().look(process, Awaited::Begun::receive, room.bytes);
    process.awaited().add(process, *request, std::move(operation));
    return mpi::success;
  });
}

int manual::recv_init(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
                      int tag, MPI_Comm comm, MPI_Request* request) {
  auto& process = site.process();
  const auto& next = site.next();
  const Receive receive{"buf", "count", buf, count, datatype, source, tag, comm};
  const bool on_gpu = site.watching() && site.on_gpu(buf, count, datatype);
  const Room room = room_of(process, receive);
  if (!on_gpu && !room.known) return mpi::calls::Recv_init(next, buf, count, datatype, source, tag, comm, request);
  return run_route(site, call, Target::of_comm(comm), [&](Route& route) {
    if (!room.known) {
      const Argument& argument = staged_receive(route, buf, count, datatype);
      return route.persistent(request, [&](const mpi::Functions& functions, mpi::Narrowed&) {
        return mpi::calls::Recv_init(functions, argument.address(), argument.count(), argument.type(), source, tag,
                                     comm, request);
      });
    }
    describe(route, receive, room, on_gpu, true);
    const Look& look = *route.operation().look;
    if (look.buffer.on_gpu || look.apart) process.took_route(call, "prepared", look.buffer.bytes);
    const int code = start_request(process, request, [&] {
      return mpi::calls::Recv_init(next, look.address, look.count, look.type, source, tag, comm, request);
    });
    if (code != mpi::success) return code;
    route.operation().persistent = true;
    process.requests().add(*request, route.shared_operation());
    return mpi::success;
  });
}

}  // namespace crosslane::interpose
