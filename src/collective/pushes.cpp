// See pushes.h.
#include "collective/pushes.h"

#include "collective/frame.h"

#include <cstddef>
#include <optional>

namespace crosslane::collective {
namespace {

std::optional<kernel::Move> push_to(const Call& call, int to) {
  const Shape& shape = call.shape;
  const int me = call.team.me();
  const auto own = static_cast<std::size_t>(me);
  const auto other = static_cast<std::size_t>(to);
  if (call.pieces != nullptr) {
    const kernel::Move from = move_from(call.mine, call.pieces->send[other]);
    // The own piece is known here; those of others are where they wait for this member's.
    const std::uint64_t place =
        to == me ? move_to(call.mine, call.pieces->receive[other]).to : address_of(call.all[other].receive);
    return kernel::Move{from.from, place, from.bytes};
  }
  if (!shape.goes(me, to)) return std::nullopt;
  const std::size_t picked = sends_blocks(shape.collective) ? other * shape.bytes : 0;
  const std::size_t placed = receives_blocks(shape.collective) ? own * shape.bytes : 0;
  return kernel::Move{address_of(call.mine.send) + picked, address_of(call.all[other].receive) + placed, shape.bytes};
}

}  // namespace

std::vector<kernel::Move> pushes_of(const Call& call) {
  std::vector<kernel::Move> moves;
  const int members = call.team.size();
  for (int step = 1; step <= members; ++step) {
    const auto move = push_to(call, (call.team.me() + step) % members);
    if (move && move->bytes != 0 && move->from != move->to) moves.push_back(*move);
  }
  return moves;
}

}  // namespace crosslane::collective
