// See message.h.
#include "point_to_point/message.h"

#include "support/plain_mpi.h"

#include <sched.h>

#include <algorithm>

namespace crosslane::tests {
namespace {

constexpr std::ptrdiff_t most_span = std::ptrdiff_t{48}
                                     << 20;  // sparse layouts of many bytes take no more memory than this

bool has_gaps(const Layout& layout) {
  const auto pieces = layout.pieces();
  return pieces.size() > 1 || (!pieces.empty() && static_cast<std::ptrdiff_t>(pieces.front().bytes) != layout.extent());
}

}  // namespace

Message::Message(Random& random, const Units& units, const Communicators& communicators, int from_rank, int to_rank,
                 int with_tag, Longest longest, bool plain)
    : from(from_rank),
      to(to_rank),
      tag(with_tag),
      link(random.pick(communicators.links(from_rank, to_rank))),
      sent(Layout::random(random, plain ? units.bytes() : units.pick(random))),
      received(Layout::random(random, sent.unit())),
      seed(random.next()) {
  if (random.chance(25) || plain) sent = Layout(sent.unit());
  if (random.chance(25)) received = Layout(sent.unit());
  const auto element = sent.units().size() * sent.unit().size;
  const bool gaps = has_gaps(sent) || has_gaps(received);
  const auto bytes = std::min(random.bytes(longest.bytes), gaps ? longest.in_pieces : longest.bytes);
  const auto wanted = std::max<std::size_t>(bytes, random.chance(90) ? 1 : 0);
  const auto room = static_cast<std::size_t>(most_span / std::max<std::ptrdiff_t>(sent.extent(), 1));
  send_count = static_cast<int>(std::min(wanted == 0 ? 0 : std::max<std::size_t>(1, wanted / element), room));
  unit_count = static_cast<std::size_t>(send_count) * sent.units().size();
  const auto elements = [this] { return (unit_count + received.units().size() - 1) / received.units().size(); };
  if (static_cast<std::ptrdiff_t>(elements()) * received.extent() > most_span) received = Layout(sent.unit());
  receive_count = static_cast<int>(elements()) + (random.chance(40) ? random.between(0, 3) : 0);
}

TypedBuffer Message::buffer(Program& program, Layout& layout, int count) const {
  auto& random = program.local();
  const auto kind = program.kind(random);
  const auto offset = static_cast<std::size_t>(layout.unit().alignment) * random.below(3);
  const bool absolute = random.chance(4) && count > 0;
  return {kind, std::move(layout), count, random.next(), offset, absolute};
}

TypedBuffer Message::send_buffer(Program& program) { return buffer(program, sent, send_count); }
TypedBuffer Message::receive_buffer(Program& program) { return buffer(program, received, receive_count); }

std::vector<std::byte> Message::contents(int round) const {
  return pattern(mix(seed, round), unit_count * sent.unit().size);
}

std::string Message::text() const {
  return fmt::format("{} units of {} from {} to {}, tag {}, over {}", unit_count, sent.unit().text, from, to, tag,
                     link.text);
}

void Message::check_status(const MPI_Status& status, const TypedBuffer& buffer, const std::string& what) const {
  CROSSLANE_CHECK(status.MPI_SOURCE == link.source && status.MPI_TAG == tag,
                  "{}: status of source {}, tag {}; expected {}, {}", what, status.MPI_SOURCE, status.MPI_TAG,
                  link.source, tag);
  const auto an_element = buffer.units_an_element();
  int expected = 0, count = -1, bytes = -1;
  if (unit_count != 0)
    expected = unit_count % an_element == 0 ? static_cast<int>(unit_count / an_element) : MPI_UNDEFINED;
  CROSSLANE_MPI(MPI_Get_count(&status, buffer.type(), &count));
  CROSSLANE_CHECK(count == expected, "{}: MPI_Get_count gives {}, expected {}, with {}", what, count, expected,
                  buffer.text());
  // Not MPI_Get_elements of the datatype: MPICH 4.0 divides by zero or gives 0 for some structs, Open MPI 4.1 counts a
  // pair as one element.
  CROSSLANE_MPI(MPI_Get_elements(&status, MPI_BYTE, &bytes));
  CROSSLANE_CHECK(static_cast<std::size_t>(bytes) == unit_count * sent.unit().size,
                  "{}: {} bytes were received, expected {}", what, bytes, unit_count * sent.unit().size);
}

void complete(Random& random, MPI_Request& request, MPI_Status* status, bool persistent) {
  int flag = 0, index = 0;
  constexpr unsigned ways = 7, by_query = 3;
  auto way = random.below(ways);
  if (way == by_query && persistent && plain_mpi().query_ends_persistent) way = ways - 1;
  switch (way) {
    case 0:
      CROSSLANE_MPI(MPI_Wait(&request, status));
      break;
    case 1:
      CROSSLANE_MPI(MPI_Waitall(1, &request, status == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : status));
      break;
    case 2:
      CROSSLANE_MPI(MPI_Waitany(1, &request, &index, status));
      break;
    case by_query:
      while (flag == 0) {
        CROSSLANE_MPI(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
        sched_yield();
      }
      CROSSLANE_MPI(MPI_Test(&request, &flag, status));
      CROSSLANE_CHECK(flag != 0, "MPI_Request_get_status said complete, MPI_Test not");
      break;
    case 4:
      while (flag == 0) {
        CROSSLANE_MPI(MPI_Testany(1, &request, &index, &flag, status));
        sched_yield();
      }
      CROSSLANE_CHECK_EQUAL(index, 0);
      break;
    case 5:
      while (flag == 0) {
        CROSSLANE_MPI(
            MPI_Testsome(1, &request, &flag, &index, status == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : status));
        sched_yield();
      }
      CROSSLANE_CHECK_EQUAL(flag, 1);
      break;
    default:
      polite_wait(request, status);
      break;
  }
}

void tell(const Communicators& communicators, int to, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, communicators.control(), &request));
  polite_wait(request);
}

void await(const Communicators& communicators, int from, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(nullptr, 0, MPI_BYTE, from, tag, communicators.control(), &request));
  polite_wait(request);
}

}  // namespace crosslane::tests
