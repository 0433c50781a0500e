// Probes and matched receives (MPI 5.0, section 3.8), and MPI_Cancel, on a rank that looks at what it receives: a probe
// tells the length of what a header stands for, and has to take it from MPI to do so.
#include "base/function_ref.h"
#include "interpose/manual.h"
#include "interpose/pending.h"
#include "interpose/receive.h"
#include "interpose/undertaking.h"
#include "mpi/status.h"

#include <memory>

namespace crosslane::interpose {
namespace {

using Probed = message::Unexpected::Probed;

Probed probe_once(Process& process, int source, int tag, MPI_Comm comm) {
  const auto facts = process.communicators()->share(comm);
  const auto lock = process.gate();
  return process.unexpected().probe(comm, facts, source, tag);
}

// The same, and takes the message: either from the queue, under a handle that stands for it, or as MPI does.
Probed match_once(Process& process, int source, int tag, MPI_Comm comm, MPI_Message* message) {
  const auto facts = process.communicators()->share(comm);
  auto& unexpected = process.unexpected();
  const auto lock = process.gate();
  Probed probed = unexpected.probe(comm, facts, source, tag);
  if (probed.code != mpi::success || !probed.there) return probed;
  if (const auto handle = unexpected.hand_out(facts.get(), source, tag)) {
    *message = *handle;
    return probed;
  }
  int there = 0;
  probed.code = process.library().below().Improbe(probed.status.MPI_SOURCE, probed.status.MPI_TAG, comm, &there,
                                                  message, &probed.status);
  probed.there = there != 0;
  return probed;
}

// A message was matched. Of a session's communicator it is no token, and may be received after MPI_Finalize; any other's handle may be that of one
// which was received without us.
int remember_matched(Process& process, const char* call, MPI_Comm comm, const MPI_Message& message) {
  auto& of_sessions = process.session_messages();
  if (!process.of_session(comm)) {
    static_cast<void>(of_sessions.take(message));
    return mpi::success;
  }
  return raising(process, Target::of_comm(comm), call, [&] {
    of_sessions.put(message, std::make_shared<Process::OfSession>());
    return mpi::success;
  });
}

// A message that MPI has and that may be a token: received as one of the queue that MPI holds. Null where it cannot be one.
message::ArrivedPointer held_by_mpi(Process& process, const Receive& receive, const MPI_Message& message) {
  const auto& handles = process.library().handles();
  const Room room = room_of(process, receive);
  const bool plain = process.least_looked_at() == message::header_bytes || !room.known || room.small ||
                     message == handles.message_null || message == handles.message_no_proc;
  if (plain) return nullptr;
  auto arrived = std::make_shared<message::Arrived>();
  arrived->comm = handles.comm_self;
  arrived->held = true;
  arrived->message = message;
  return arrived;
}

struct Matched {
  void* buf;
  MPI_Count count;
  MPI_Datatype datatype;
  MPI_Message* message;
};

// Receives what a probe has matched. What comes from the queue, or may be a token, is begun here, as `request`, and goes on by `begun`; anything
// else is the MPI's: `plainly`, or `staged` for GPU memory. Where the arguments are wrong the message is still there.
int receive_matched(const Site& site, const char* call, const Matched& what, MPI_Request* request,
                    base::FunctionRef<int()> plainly, base::FunctionRef<int(Route&, const Argument&)> staged,
                    base::FunctionRef<int(Route&)> begun) {
  auto& process = site.process();
  const auto& next = site.next();
  const bool on_gpu = site.watching() && site.on_gpu(what.buf, what.count, what.datatype);
  Receive receive{"buf",         "count",         what.buf,     what.count,
                  what.datatype, mpi::any_source, mpi::any_tag, process.library().handles().comm_self};
  message::ArrivedPointer arrived;
  const MPI_Message handle = *what.message;
  const auto of_session = process.session_messages().find(handle);
  const int result = run_route(process, next, call, Target::self(), [&](Route& route) {
    if (!of_session) arrived = process.unexpected().handed_out(handle);
    if (!of_session && !arrived) arrived = held_by_mpi(process, receive, handle);
    if (arrived) return mpi::success;
    return on_gpu ? staged(route, staged_receive(route, what.buf, what.count, what.datatype)) : plainly();
  });
  if (of_session && result == mpi::success) process.session_messages().drop(handle, of_session);
  if (!arrived || result != mpi::success) return result;
  // The application may have freed the communicator since.
  const bool gone = arrived->facts != nullptr && arrived->facts->freed;
  if (!gone) receive.comm = arrived->comm;
  return run_route(process, next, call, gone ? Target::self() : Target::of_comm(arrived->comm), [&](Route& route) {
    describe(route, receive, room_of(process, receive), on_gpu);
    route.operation().look->matched = true;
    if (!arrived->held) process.unexpected().claim(*what.message);
    const int code = match(process, next, route.operation(), arrived, request);
    if (arrived->held) *what.message = arrived->message;
    return code == mpi::success ? begun(route) : code;
  });
}

// For MPI alone: nothing is looked at, there is no sender, or no communicator, which the MPI refuses.
bool not_ours(const Site& site, int source, MPI_Comm comm) {
  return !site.looking(comm) || source == mpi::proc_null || site.is_null(comm);
}

template <class Once>
int probing(const Site& site, const char* call, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status,
            Once&& once) {
  auto& process = site.process();
  return run_route(process, site.next(), call, Target::of_comm(comm), [&](Route& route) {
    process.settle(false);
    Probed probed;
    if (flag != nullptr) {
      probed = once();
      *flag = probed.there ? 1 : 0;
      if (!probed.there) process.awaited().passes(process);
    } else {
      const auto told = [&] { return waits_for_message(source, tag); };
      const Waiting waiting{route.operation(), told};
      wait_until(
          process,
          [&] {
            probed = once();
            return probed.there || probed.code != mpi::success;
          },
          waiting.watch());
    }
    if (probed.there) mpi::copy_but_error(probed.status, status);
    return probed.code;
  });
}

}  // namespace

int manual::probe(const Site& site, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  const auto& next = site.next();
  if (not_ours(site, source, comm)) return next.Probe(source, tag, comm, status);
  return probing(site, "MPI_Probe", source, tag, comm, nullptr, status,
                 [&] { return probe_once(site.process(), source, tag, comm); });
}

int manual::iprobe(const Site& site, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (not_ours(site, source, comm)) return next.Iprobe(source, tag, comm, flag, status);
  return probing(site, "MPI_Iprobe", source, tag, comm, flag, status,
                 [&] { return probe_once(site.process(), source, tag, comm); });
}

int manual::mprobe(const Site& site, int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  constexpr const char* call = "MPI_Mprobe";
  const auto& next = site.next();
  const bool plain = not_ours(site, source, comm);
  const int code = plain ? next.Mprobe(source, tag, comm, message, status)
                         : probing(site, call, source, tag, comm, nullptr, status,
                                   [&] { return match_once(site.process(), source, tag, comm, message); });
  return code == mpi::success ? remember_matched(site.process(), call, comm, *message) : code;
}

int manual::improbe(const Site& site, int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                    MPI_Status* status) {
  constexpr const char* call = "MPI_Improbe";
  const auto& next = site.next();
  const bool plain = not_ours(site, source, comm);
  const int code = plain ? next.Improbe(source, tag, comm, flag, message, status)
                         : probing(site, call, source, tag, comm, flag, status,
                                   [&] { return match_once(site.process(), source, tag, comm, message); });
  const bool matched = code == mpi::success && *flag != 0;
  return matched ? remember_matched(site.process(), call, comm, *message) : code;
}

int manual::mrecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype,
                  MPI_Message* message, MPI_Status* status) {
  MPI_Request request{};
  const auto plainly = [&] { return mpi::calls::Mrecv(site.next(), buf, count, datatype, message, status); };
  const auto staged = [&](Route& route, const Argument& argument) {
    return route.blocking(status, [&](const mpi::Functions& functions, mpi::Narrowed&, MPI_Status* told) {
      return mpi::calls::Mrecv(functions, argument.address(), argument.count(), argument.type(), message, told);
    });
  };
  const auto begun = [&](Route& route) { return wait_and_finish(route, &request, status); };
  return receive_matched(site, call, {buf, count, datatype, message}, &request, plainly, staged, begun);
}

int manual::imrecv(const Site& site, const char* call, void* buf, MPI_Count count, MPI_Datatype datatype,
                   MPI_Message* message, MPI_Request* request) {
  const auto plainly = [&] { return mpi::calls::Imrecv(site.next(), buf, count, datatype, message, request); };
  const auto staged = [&](Route& route, const Argument& argument) {
    return route.nonblocking(request, [&](const mpi::Functions& functions, mpi::Narrowed&) {
      return mpi::calls::Imrecv(functions, argument.address(), argument.count(), argument.type(), message, request);
    });
  };
  const auto begun = [&](Route& route) {
    site.process().requests().add(*request, route.shared_operation());
    return mpi::success;
  };
  return receive_matched(site, call, {buf, count, datatype, message}, request, plainly, staged, begun);
}

// What has been matched is no longer to be cancelled.
int manual::cancel(const Site& site, MPI_Request* request) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Cancel(request);
  Process& process = site.process();
  const auto operation = process.requests().find(*request);
  if (operation == nullptr) return next.Cancel(request);
  return raising(process, operation->raised_on(), "MPI_Cancel", [&] {
    const auto lock = process.handle(*operation);
    if (operation->active && operation->undertaking) {
      const Nested nested;
      operation->undertaking->cancel();
      return mpi::success;
    }
    const bool matched =
        operation->active && operation->look && (operation->look->own || operation->look->state != Look::State::posted);
    return matched ? mpi::success : next.Cancel(request);
  });
}

}  // namespace crosslane::interpose
