// See draw.h.
#include "point_to_point/short/draw.h"

#include <array>
#include <utility>

namespace crosslane::tests {

std::size_t draw_length(const Ring& ring, Random& random) {
  const auto dice = random.below(100);
  const auto near = random.pick(std::array<std::size_t, 8>{7, 8, 9, 16, 253, 254, 255, 256});
  const auto token = random.between(least_token, longest_token);
  const auto other = random.below(2) == 0 ? random.below(least_token) : random.between(longest_token + 1, longest);
  if (ring.tokens_only || dice < 70) return token;
  return dice < 82 ? near : other;
}

Message draw_message(const Ring& ring, Random& random, int from, int to, int tag, bool bytes) {
  const bool even = bytes || random.chance(50);
  Message message(random, ring.units, ring.communicators, from, to, tag, {longest, longest}, even);
  const std::size_t wanted = draw_length(ring, random);
  const Unit& unit = message.sent.unit();
  if (bytes || message.sent.units().size() * unit.size > wanted) message.sent = Layout(unit);
  if (bytes || message.received.extent() > 100000) message.received = Layout(unit);
  const auto element = message.sent.units().size() * unit.size;
  message.send_count = static_cast<int>(wanted / element);
  if (message.send_count == 0 && wanted >= least_token && element <= longest) message.send_count = 1;
  message.unit_count = static_cast<std::size_t>(message.send_count) * message.sent.units().size();
  const auto to_receive = message.received.units().size();
  message.receive_count = static_cast<int>((message.unit_count + to_receive - 1) / to_receive);
  if (random.chance(40)) message.receive_count += random.between(0, bytes ? 300 : 4);
  return message;
}

Layout draw_gaps(Ring& ring) {
  for (;;) {
    auto layout = Layout::random(ring.local(), ring.units.bytes(), 16);
    if (layout.units().size() == 1 && layout.extent() > 1 && layout.extent() < 100) return layout;
  }
}

TypedBuffer draw_buffer(Ring& ring, Layout layout, int count) {
  const MemoryKind kind = ring.kind();
  const auto offset = static_cast<std::size_t>(layout.unit().alignment) * ring.local().below(3);
  const bool absolute = ring.local().chance(4) && count > 0;
  return {kind, std::move(layout), count, ring.local().next(), offset, absolute};
}

TypedBuffer byte_buffer(Ring& ring, std::size_t bytes) { return byte_buffer(ring, bytes, ring.kind()); }

TypedBuffer byte_buffer(Ring& ring, std::size_t bytes, MemoryKind kind) {
  return {kind, Layout(ring.units.bytes()), static_cast<int>(bytes), ring.local().next(), ring.local().below(9)};
}

}  // namespace crosslane::tests
