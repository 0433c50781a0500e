// The receiver's side of an offered payload that goes through host memory: this rank cannot reach it, or its sender has waited long enough and has a
// copy. It is asked for by declining the offer (lookout.h), and the sender's helper thread fills it into this rank's ferry (share/ferry.h). The
// sender itself may sit in any call of MPI meanwhile, or in none. See transfers.h.
#include "message/receiver.h"
#include "message/sides.h"
#include "share/ferry.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

using State = share::Offers::State;

}  // namespace

// It asks at once, whoever's payload comes before: the send may be over then. What has a number has to be read, or all that comes behind it by this
// ferry would wait for ever: what may fail, for want of memory, too, comes before, or does not keep it from being read.
engine::Task<> Receiver::read_ferried(Header header, share::Offers::Ticket offer, std::size_t begin, Buffer buffer,
                                      std::shared_ptr<Received> received, engine::Watch watch) {
  struct Slot {
    lane::HostBlock block;
    engine::Completion copied;
  };
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  std::array<Slot, 2> slots;
  lane::Batch batch(copier_, watch);  // waits for its copies before their slots go
  std::exception_ptr failure;
  const share::Ferry ferry = peers_->own_ferry();
  const std::uint64_t number = ferry.next_number();
  peers_->offers().decline(peers_->owner(header), offer, number);
  // One payload at a time, whoever it comes from: its sender's helper thread waits for nothing but this rank's looks.
  const auto turn = ferry.turn(number);
  co_await turn;
  bool abandoned = false;
  std::size_t chunk_number = 0;
  for (; begin < header.bytes && !received->failed; ++chunk_number) {
    const auto arrival = ferry.arrival();
    while (!arrival.done() && !abandoned) {
      co_await arrival.or_after(between_questions);
      // Asked for before the last look: what it has filled in until then counts.
      abandoned = !arrival.done() && !peers_->alive(header) && !arrival.done();
    }
    received->failed = abandoned || ferry.chunk().empty();
    if (abandoned) break;
    const auto chunk = ferry.chunk();
    const std::size_t end = std::min(begin + chunk.size(), room);
    try {
      if (begin < end && !failure && !buffer.on_gpu) unpack(buffer, chunk.data(), begin, end);
      if (begin < end && !failure && buffer.on_gpu) {
        Slot& slot = slots[chunk_number % slots.size()];
        co_await written(slot.copied, batch);
        if (slot.block.data() == nullptr) slot.block = batch.lend(buffer.place, share::Ferry::most_chunk_bytes);
        std::memcpy(slot.block.data(), chunk.data(), end - begin);
        batch.to_gpu(buffer.place, buffer.address, slot.block.data(), *buffer.layout, buffer.count, begin, end,
                     lane::Form::packed);
        slot.copied = batch.completion();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    begin += chunk.size();
    ferry.take();
  }
  if (abandoned)
    ferry.abandon_turn();
  else
    ferry.end_turn();
  for (std::size_t i = 0; !failure && i < slots.size(); ++i) co_await written(slots[i].copied, batch);
  if (failure) std::rethrow_exception(failure);
  if (abandoned) throw_if_gone(header, watch);
  received->bytes = received->failed ? 0 : std::min<std::size_t>(header.bytes, room);
}

// For the receiver, from that piece on, of a payload that came by the ferry: its sender has copied it, and waits for nobody else to be past the
// blocks. Where a block has another piece behind this one its sender ends them.
void Receiver::end_unread(const Header& header, std::uint64_t piece) const noexcept {
  const Pieces& pieces = header.pieces;
  const auto& offers = peers_->offers();
  const int owner = peers_->owner(header);
  if (pieces.count(header.bytes) > pieces.blocks) return;
  for (; piece < pieces.count(header.bytes); ++piece)
    if (offers.take(owner, pieces.ticket(piece))) offers.end(owner, pieces.ticket(piece), State::done);
}

}  // namespace crosslane::message
