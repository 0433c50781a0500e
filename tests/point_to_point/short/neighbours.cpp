// Cases in which each rank sends to its right and receives from its left; see cases.h.
#include "point_to_point/short/cases.h"
#include "point_to_point/short/complete.h"
#include "point_to_point/short/draw.h"
#include "point_to_point/short/transfer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <vector>

namespace crosslane::tests {
namespace {

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
constexpr bool has_isendrecv = true;
#else
constexpr bool has_isendrecv = false;
#endif

}  // namespace

void probed_past(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  const int count = random.between(1, 6);
  std::deque<Message> messages;
  for (int from = 0; from < ring.size(); ++from) {
    for (int tag = 0; tag <= count; ++tag) {
      const bool last = tag == count;
      auto& message = messages.emplace_back(draw_message(ring, random, from, (from + 1) % ring.size(), tag, last));
      message.link = {ring.communicator, from, message.to, "a duplicate"};
      if (!last) continue;
      message.unit_count = random.between(longest_token + 1, longest);  // one byte each
      message.send_count = message.receive_count = static_cast<int>(message.unit_count);
    }
  }
  ring.step(fmt::format("a probe past {} messages", count));
  std::deque<Outgoing> sends;
  std::vector<Message*> mine;
  for (auto& message : messages) {
    if (message.from == ring.rank()) sends.emplace_back(ring, message).start(local);
    if (message.to == ring.rank()) mine.push_back(&message);
  }
  ring.sleep();
  MPI_Status status;
  CROSSLANE_MPI(MPI_Probe(local.chance(30) ? MPI_ANY_SOURCE : ring.left, count, ring.communicator, &status));
  check_bytes(status, mine.back()->unit_count, "a probe past others");
  local.shuffle(mine);
  std::deque<Incoming> receives;
  for (auto* const message : mine) {
    auto& one = receives.emplace_back(ring, *message);
    one.receive(ring, message->link, local.chance(50));
  }
  complete_all(local, receives, sends);
  for (auto& one : receives) one.check(ring);
  polite_barrier();
  for (auto& one : sends) one.end(ring);
}

void exchange(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  const int left = ring.left, right = ring.right;
  const auto way = random.below(has_isendrecv && ring.program.option("isendrecv", 1) != 0 ? 4 : 2);
  const bool replaces = way % 2 == 1;
  std::deque<Message> messages;
  const auto bytes = draw_length(ring, random);
  for (int from = 0; from < ring.size(); ++from)
    messages.push_back(draw_message(ring, random, from, (from + 1) % ring.size(), from, replaces));
  ring.step(fmt::format("an exchange, way {}", way));
  auto& out = messages[static_cast<std::size_t>(ring.rank())];
  auto& in = messages[static_cast<std::size_t>(left)];
  const int source = local.chance(30) ? MPI_ANY_SOURCE : left;
  const auto comm = ring.communicator;
  MPI_Status status{};
  [[maybe_unused]] MPI_Request request = MPI_REQUEST_NULL;
  ring.sleep();
  if (!replaces) {
    Outgoing sent(ring, out);
    Incoming received(ring, in);
    const auto &from = sent.buffer, &to = received.buffer;
    received.told = way != 0 || local.chance(70);
    if (way == 0)
      CROSSLANE_MPI(MPI_Sendrecv(from.address(), from.count(), from.type(), right, out.tag, to.address(), to.count(),
                                 to.type(), source, in.tag, comm, received.told ? &status : MPI_STATUS_IGNORE));
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    if (way == 2) {
      CROSSLANE_MPI(MPI_Isendrecv(from.address(), from.count(), from.type(), right, out.tag, to.address(), to.count(),
                                  to.type(), source, in.tag, comm, &request));
      complete(local, request, &status);
    }
#endif
    in.link.source = left;  // on this communicator
    received.status = status;
    received.check(ring);
    sent.end(ring);
    return;
  }
  auto memory = byte_buffer(ring, bytes);
  memory.load(pattern(mix(out.seed, 3), bytes));
  const bool told = local.chance(70);
  if (way == 1)
    CROSSLANE_MPI(MPI_Sendrecv_replace(memory.address(), memory.count(), memory.type(), right, out.tag, source, in.tag,
                                       comm, told ? &status : MPI_STATUS_IGNORE));
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  if (way == 3) {
    CROSSLANE_MPI(MPI_Isendrecv_replace(memory.address(), memory.count(), memory.type(), right, out.tag, source, in.tag,
                                        comm, &request));
    complete(local, request, told ? &status : MPI_STATUS_IGNORE);
  }
#endif
  memory.check_received(pattern(mix(in.seed, 3), bytes), "an exchange that replaces");
  if (told) check_bytes(status, bytes, "an exchange that replaces");
}

void cancelled(Ring& ring) {
  ring.step("cancelling");
  const int left = ring.left, right = ring.right;
  const auto comm = ring.communicator;
  auto first = byte_buffer(ring, 100), second = byte_buffer(ring, 300);
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  CROSSLANE_MPI(MPI_Irecv(first.address(), 100, MPI_BYTE, left, never_sent, comm, requests.data()));
  CROSSLANE_MPI(MPI_Recv_init(second.address(), 300, MPI_BYTE, MPI_ANY_SOURCE, never_sent, comm, &requests[1]));
  CROSSLANE_MPI(MPI_Start(&requests[1]));
  for (auto& request : requests) {
    MPI_Status status;
    int flag = 0;
    CROSSLANE_MPI(MPI_Cancel(&request));
    polite_wait(request, &status);
    CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
    CROSSLANE_CHECK(flag != 0, "a receive that nothing matches was not cancelled");
  }
  CROSSLANE_MPI(MPI_Request_free(&requests[1]));
  first.check_unchanged("a cancelled receive");
  second.check_unchanged("a cancelled persistent receive");
  // A cancelled send is received unless it was indeed cancelled, of which the receiver is told.
  const auto bytes = draw_length(ring, ring.shared());
  const auto seed = ring.shared().next();
  auto out = byte_buffer(ring, bytes), in = byte_buffer(ring, bytes);
  out.load(pattern(mix(seed, ring.rank()), bytes));
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Status status;
  int mine = 0, theirs = 0;
  CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), right, 7, comm, &send));
  CROSSLANE_MPI(MPI_Cancel(&send));
  polite_wait(send, &status);
  CROSSLANE_MPI(MPI_Test_cancelled(&status, &mine));
  std::vector<MPI_Request> telling(2, MPI_REQUEST_NULL);
  CROSSLANE_MPI(MPI_Irecv(&theirs, 1, MPI_INT, left, 8, ring.communicators.control(), &telling[0]));
  CROSSLANE_MPI(MPI_Isend(&mine, 1, MPI_INT, right, 8, ring.communicators.control(), &telling[1]));
  polite_waitall(telling);
  if (theirs == 0) {
    CROSSLANE_MPI(MPI_Recv(in.address(), in.count(), in.type(), left, 7, comm, &status));
    in.check_received(pattern(mix(seed, left), bytes), "a send that could not be cancelled");
    check_bytes(status, bytes, "a send that could not be cancelled");
  }
}

void flood(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  const int left = ring.left;
  const auto comm = ring.communicator;
  const std::size_t count = random.between<std::size_t>(260, 420);
  const auto seed = random.next();
  const bool posted_first = random.chance(30);
  const bool synchronous = random.chance(30);
  constexpr std::size_t apart = 320;
  ring.step(fmt::format("{} messages at once", count));
  std::vector<std::size_t> bytes, order;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(draw_length(ring, random));
    order.push_back(i);
  }
  local.shuffle(order);
  const auto noise = local.next();
  auto image = pattern(noise, count * apart), to_send = image;
  for (std::size_t i = 0; i < count; ++i) {
    const auto out = pattern(mix(seed, ring.rank(), i), bytes[i]), in = pattern(mix(seed, left, i), bytes[i]);
    std::ranges::copy(out, to_send.begin() + static_cast<std::ptrdiff_t>(i * apart));
    std::ranges::copy(in, image.begin() + static_cast<std::ptrdiff_t>(i * apart));
  }
  Memory sent(ring.kind(), count * apart), received(ring.kind(), count * apart);
  sent.write(to_send);
  received.write(pattern(noise, count * apart));
  std::vector<MPI_Request> sends(count, MPI_REQUEST_NULL), receives(count, MPI_REQUEST_NULL);
  const auto post = [&](std::size_t i, int source) {
    CROSSLANE_MPI(MPI_Irecv(received.as<char>() + i * apart, static_cast<int>(bytes[i]), MPI_BYTE, source,
                            static_cast<int>(i), comm, &receives[i]));
  };
  if (posted_first)
    for (const std::size_t i : order) post(i, left);
  for (std::size_t i = 0; i < count; ++i)
    CROSSLANE_MPI((synchronous ? MPI_Issend : MPI_Isend)(sent.as<char>() + i * apart, static_cast<int>(bytes[i]),
                                                         MPI_BYTE, ring.right, static_cast<int>(i), comm, &sends[i]));
  ring.sleep();
  polite_barrier();
  if (!posted_first) {
    for (const std::size_t i : order) {
      const auto way = local.below(4);
      const int n = static_cast<int>(bytes[i]), tag = static_cast<int>(i);
      void* const at = received.as<char>() + i * apart;
      MPI_Message handle = MPI_MESSAGE_NULL;
      if (way == 0) {
        CROSSLANE_MPI(MPI_Recv(at, n, MPI_BYTE, left, tag, comm, MPI_STATUS_IGNORE));
      } else if (way == 1) {
        CROSSLANE_MPI(MPI_Mprobe(left, tag, comm, &handle, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Imrecv(at, n, MPI_BYTE, &handle, &receives[i]));
      } else {
        post(i, MPI_ANY_SOURCE);
      }
    }
  }
  if (local.chance(50))
    CROSSLANE_MPI(MPI_Waitall(static_cast<int>(count), receives.data(), MPI_STATUSES_IGNORE));
  else
    polite_waitall(receives);
  polite_waitall(sends);
  const auto now = received.read();
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::ptrdiff_t>(i * apart);
    CROSSLANE_CHECK(std::equal(now.begin() + from, now.begin() + from + apart, image.begin() + from),
                    "case {}: message {} of {}, {} bytes from {} into {} memory", ring.case_number, i, count, bytes[i],
                    left, name(received.kind()));
  }
  CROSSLANE_CHECK(sent.read() == to_send, "case {}: sends changed their buffer", ring.case_number);
}

void freed_communicator(Ring& ring) {
  ring.step("a communicator that is freed while messages are under way");
  auto& local = ring.local();
  const int left = ring.left;
  const auto bytes = draw_length(ring, ring.shared());
  const auto seed = ring.shared().next();
  std::deque<TypedBuffer> out, in;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < 3; ++i) {
    MPI_Comm comm = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    auto& to_send = out.emplace_back(byte_buffer(ring, bytes));
    auto& to_receive = in.emplace_back(byte_buffer(ring, bytes));
    to_send.load(pattern(mix(seed, ring.rank(), i), bytes));
    MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
    const bool late = local.chance(50);
    if (!late)
      CROSSLANE_MPI(MPI_Irecv(to_receive.address(), to_receive.count(), to_receive.type(), left, 1, comm, &receive));
    CROSSLANE_MPI(MPI_Isend(to_send.address(), to_send.count(), to_send.type(), ring.right, 1, comm, &send));
    if (late) {
      if (local.chance(50)) CROSSLANE_MPI(MPI_Probe(left, 1, comm, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Irecv(to_receive.address(), to_receive.count(), to_receive.type(), left, 1, comm, &receive));
    }
    CROSSLANE_MPI(MPI_Comm_free(&comm));
    requests.push_back(send);
    requests.push_back(receive);
  }
  polite_waitall(requests);
  for (int i = 0; i < 3; ++i)
    in[static_cast<std::size_t>(i)].check_received(pattern(mix(seed, left, i), bytes), "over a freed communicator");
}

}  // namespace crosslane::tests
