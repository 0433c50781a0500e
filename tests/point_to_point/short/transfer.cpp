// See transfer.h.
#include "point_to_point/short/transfer.h"

#include "point_to_point/short/draw.h"

#include <sched.h>

#include <cstdint>
#include <utility>

namespace crosslane::tests {

Outgoing::Outgoing(Ring& ring, Message& of)
    : message(&of), buffer(draw_buffer(ring, std::move(of.sent), of.send_count)) {
  buffer.load(of.contents());
}

void Outgoing::start(Random& local) {
  const auto& link = message->link;
  const auto way = local.below(10);
  if (way >= 8) {
    CROSSLANE_MPI((way == 8 ? MPI_Send_init : MPI_Ssend_init)(
        buffer.address(), buffer.count(), buffer.type(), link.destination, message->tag, link.communicator, &request));
    persistent = true;
    CROSSLANE_MPI(MPI_Start(&request));
    return;
  }
  CROSSLANE_MPI((way < 2 ? MPI_Issend : MPI_Isend)(buffer.address(), buffer.count(), buffer.type(), link.destination,
                                                   message->tag, link.communicator, &request));
  // MPICH 4.0 forgets what it sends to the rank itself if that is freed.
  const bool to_itself = message->from == message->to;
  if (way == 7 && local.chance(50) && !to_itself) CROSSLANE_MPI(MPI_Request_free(&request));
}

void Outgoing::end(const Ring& ring) {
  if (persistent) CROSSLANE_MPI(MPI_Request_free(&request));
  buffer.check_unchanged(fmt::format("case {}: a buffer that was sent", ring.case_number));
}

Incoming::Incoming(Ring& ring, Message& of)
    : message(&of), buffer(draw_buffer(ring, std::move(of.received), of.receive_count)) {}

Incoming::Incoming(Ring& ring, std::string of_group, std::size_t room)
    : group(std::move(of_group)), buffer(byte_buffer(ring, room)) {}

void Incoming::receive(Ring& ring, const Link& link, bool blocking) {
  auto& local = ring.local();
  way = blocking ? static_cast<Way>(local.below(static_cast<std::uint64_t>(Way::ways)))
                 : (local.chance(70) ? Way::irecv : Way::persistent);
  const bool any = message == nullptr;
  const int source = any || local.chance(30) ? MPI_ANY_SOURCE : link.source;
  const int tag = any ? MPI_ANY_TAG : message->tag;
  told = any || local.chance(75);
  ring.step(fmt::format("receiving by way {} from {} with tag {} over {}{}", static_cast<int>(way), source, tag,
                        link.text, any ? ", any message" : ""));
  const auto comm = link.communicator;
  MPI_Status probed{};
  MPI_Status* const wanted = told ? &status : MPI_STATUS_IGNORE;
  int flag = 0;
  switch (way) {
    case Way::recv:
      CROSSLANE_MPI(MPI_Recv(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, wanted));
      break;
    case Way::irecv:
      CROSSLANE_MPI(MPI_Irecv(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, &request));
      break;
    case Way::persistent:
      CROSSLANE_MPI(MPI_Recv_init(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, &request));
      CROSSLANE_MPI(MPI_Start(&request));
      break;
    case Way::probe:
    case Way::iprobe:
      if (way == Way::probe)
        CROSSLANE_MPI(MPI_Probe(source, tag, comm, &probed));
      else
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Iprobe(source, tag, comm, &flag, &probed));
      CROSSLANE_MPI(
          MPI_Recv(buffer.address(), buffer.count(), buffer.type(), probed.MPI_SOURCE, probed.MPI_TAG, comm, wanted));
      break;
    case Way::mprobe:
    case Way::mprobe_later:
    case Way::imrecv_later:
      CROSSLANE_MPI(MPI_Mprobe(source, tag, comm, &handle, &probed));
      break;
    case Way::improbe:
    case Way::imrecv:
      for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Improbe(source, tag, comm, &flag, &handle, &probed));
      break;
    case Way::ways:
      break;
  }
  if (message != nullptr && way >= Way::probe) check_bytes(probed, message->contents().size(), "a probe");
  if (way == Way::mprobe || way == Way::improbe || way == Way::imrecv) receive_matched();
}

void Incoming::receive_matched() {
  if (way == Way::imrecv || way == Way::imrecv_later)
    CROSSLANE_MPI(MPI_Imrecv(buffer.address(), buffer.count(), buffer.type(), &handle, &request));
  else
    CROSSLANE_MPI(
        MPI_Mrecv(buffer.address(), buffer.count(), buffer.type(), &handle, told ? &status : MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(handle == MPI_MESSAGE_NULL, "a matched receive leaves its message");
}

void Incoming::check(const Ring& ring) {
  if (way == Way::persistent) CROSSLANE_MPI(MPI_Request_free(&request));
  const auto what =
      fmt::format("case {}, received by way {}: {}", ring.case_number, static_cast<int>(way), message->text());
  if (told) message->check_status(status, buffer, what);
  buffer.check_received(message->contents(), what);
}

void check_bytes(const MPI_Status& status, std::size_t bytes, const std::string& what) {
  int received = -1;
  CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
  CROSSLANE_CHECK(received == static_cast<int>(bytes), "{}: the status tells {} bytes, expected {}", what, received,
                  bytes);
}

}  // namespace crosslane::tests
