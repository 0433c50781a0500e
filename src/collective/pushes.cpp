// See pushes.h.
#include "collective/pushes.h"

#include "collective/frame.h"

#include <cstddef>

namespace crosslane::collective {

kernel::Move push_of(const Call& call, int step) {
  const Shape& shape = call.shape;
  const int me = call.team.me();
  const int to = (me + step) % call.team.size();
  const auto own = static_cast<std::size_t>(me);
  const auto other = static_cast<std::size_t>(to);
  if (call.pieces != nullptr) {
    const kernel::Move from = move_from(call.mine, call.pieces->send[other]);
    // The own piece is known here; those of others are where they wait for this member's.
    const std::uint64_t place =
        to == me ? move_to(call.mine, call.pieces->receive[other]).to : address_of(call.all[other].receive);
    return {from.from, place, from.bytes};
  }
  if (!shape.goes(me, to)) return {0, 0, 0};
  const std::size_t picked = sends_blocks(shape.collective) ? other * shape.bytes : 0;
  const std::size_t placed = receives_blocks(shape.collective) ? own * shape.bytes : 0;
  return {address_of(call.mine.send) + picked, address_of(call.all[other].receive) + placed, shape.bytes};
}

std::vector<kernel::Move> pushes_of(const Call& call) {
  std::vector<kernel::Move> moves;
  for (int step = 1; step <= call.team.size(); ++step) {
    const kernel::Move move = push_of(call, step);
    if (move.bytes != 0 && move.from != move.to) moves.push_back(move);
  }
  return moves;
}

}  // namespace crosslane::collective
