// Both sides of an offered payload that goes through host memory: its receiver cannot reach it, or its sender has waited long enough and has a
// copy. The receiver asks for it by declining the offer, and the sender's helper thread fills it into the receiver's ferry (share/ferry.h). The
// sender itself may sit in any call of MPI meanwhile, or in none. See transfers.h.
#include "base/error.h"
#include "base/log.h"
#include "message/offering.h"
#include "message/sides.h"
#include "message/transfers.h"

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

// How often the helper thread looks for declined offers while there are any, which costs it some microseconds; and of these rounds without an
// offer, before they end: a program that sends now and then shall not begin them each time.
constexpr base::Duration between_looks = std::chrono::milliseconds{10};
constexpr unsigned most_unwatched_rounds = 32;

}  // namespace

// At once, whoever's payload comes before: the send may be over then.
std::uint64_t Receiver::ask_for(const Header& header, const share::Offers::Ticket& offer) {
  const std::uint64_t number = peers_->own_ferry().next_number();
  peers_->offers().decline(peers_->owner(header), offer, number);
  return number;
}

engine::Task<> Receiver::read_ferried(Header header, std::size_t begin, Buffer buffer,
                                      std::shared_ptr<Received> received, std::uint64_t number, engine::Watch watch) {
  struct Slot {
    lane::HostBlock block;
    engine::Completion copied;
  };
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  const share::Ferry ferry = peers_->own_ferry();
  // One payload at a time, whoever it comes from: its sender's helper thread waits for nothing but this rank's looks.
  const auto turn = ferry.turn(number);
  co_await turn;
  std::array<Slot, 2> slots;
  lane::Batch batch(copier_, watch);  // waits for its copies before their slots go
  std::exception_ptr failure;
  bool abandoned = false;
  std::size_t chunk_number = 0;
  for (; begin < header.bytes && !received->failed; ++chunk_number) {
    const auto arrival = ferry.arrival();
    while (!arrival.done() && !abandoned) {
      co_await either(arrival, engine::Completion::after(between_questions));
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
  received->bytes = received->failed ? 0 : std::min<std::size_t>(header.bytes, room);
}

// On the helper thread: a copy of an offered payload that was declined. `owner` holds the offering, and the memory of a listed payload.
engine::Task<> Transfers::copy_declined(Offering& offering, std::shared_ptr<void> owner) {
  const auto copied = std::make_shared<Ferrying::Copy>(offering.header_.offer, offering.to_);
  try {
    const auto copy = std::make_shared<Buffer>();
    co_await to_host(offering.buffer_, 0, copy, offering.watch_);
    copied->payload.emplace(copy->address, copy->address + copy->bytes);
  } catch (...) {
    const std::lock_guard lock(offerings_mutex_);
    offering.uncopied_ = std::current_exception();
  }
  // Once that has said so the send is over for its sender; until then, that has the offering, too, so that nothing ends on this thread.
  owner.reset();
  auto carrying = ferrying_.carry(copied);
  co_await std::move(carrying);
}

void Transfers::watch_packed(const Packed& packed) {
  {
    const std::lock_guard lock(packed_mutex_);
    packed_.push_back(packed);
    packed_size_.store(packed_.size(), std::memory_order_seq_cst);
  }
  begin_looking();
}

// Nobody asks for the others that are forgotten: they were read, or nobody receives them.
std::vector<Transfers::Packed> Transfers::take_declined() {
  std::vector<Packed> declined;
  if (packed_size_.load(std::memory_order_relaxed) == 0) return declined;
  const auto& offers = peers_->offers();
  const std::lock_guard lock(packed_mutex_);
  std::erase_if(packed_, [&](const Packed& packed) {
    const auto ticket = packed.pieces.ticket(0);
    if (offers.declined(ticket)) {
      declined.push_back(packed);
      return true;
    }
    return offers.state(ticket) == State::kept || offers.reached(ticket, State::done).done();
  });
  packed_size_.store(packed_.size(), std::memory_order_seq_cst);
  return declined;
}

// On the helper thread: what its receiver cannot read in its blocks, and has declined.
engine::Task<> Transfers::copy_packed(Packed packed) {
  const engine::Watch watch{.call = "a packed message that its receiver cannot read"};
  const Pieces& pieces = packed.pieces;
  const auto copied = std::make_shared<Ferrying::Copy>(pieces.ticket(0), packed.to);
  try {
    const auto offered = peers_->offers().reached(pieces.ticket(pieces.count(packed.bytes) - 1), State::offered);
    co_await written(offered, copier_, packed.place);
    auto copying = copy_blocks(packed, *copied, watch);
    co_await std::move(copying);
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "a message of {} bytes for rank {} of MPI_COMM_WORLD is lost: {}", packed.bytes,
              packed.to, error.what());
  }
  auto carrying = ferrying_.carry(copied);
  co_await std::move(carrying);
}

engine::Task<> Transfers::copy_blocks(const Packed& packed, Ferrying::Copy& copied, const engine::Watch& watch) {
  const lane::Place place = peers_->place();
  const std::byte* const memory = peers_->parcels().memory();
  if (memory == nullptr)
    throw base::Error(base::ErrorClass::other, "the CUDA context that it lay in was destroyed or reset");
  lane::Batch batch(copier_, watch);
  const lane::HostBlock block = batch.lend(place, packed.bytes);
  std::exception_ptr failure;
  try {
    for (std::uint64_t piece = 0; piece < packed.pieces.count(packed.bytes); ++piece) {
      const std::uint64_t begin = packed.pieces.begin(piece);
      batch.fetch(place, block.data() + begin, lane::Side::packed(memory + packed.pieces.offset(piece)), begin,
                  std::min(begin + packed.pieces.piece_bytes, packed.bytes));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    co_await ended(batch, watch);
    std::rethrow_exception(failure);
  }
  const auto fetched = batch.completion();
  co_await written(fetched, batch);
  copied.payload.emplace(block.data(), block.data() + packed.bytes);
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

// A rank that sends leaves it to its helper thread to see that a receiver cannot read: it may be in a call of MPI by then.
void Transfers::watch(Offering& offering, const share::Offers::Ticket& offer) noexcept {
  offering.watched_ = true;
  open_[offer.line].store(&offering, std::memory_order_seq_cst);
  begin_looking();
}

void Transfers::begin_looking() noexcept {
  if (watches_.load(std::memory_order_seq_cst) || watches_.exchange(true, std::memory_order_seq_cst)) return;
  try {
    helper().spawn(look_for_declined());
  } catch (const std::exception& error) {
    watches_.store(false, std::memory_order_seq_cst);
    base::log(base::Topic::warning, "no helper thread looks after messages whose receivers cannot read them: {}",
              error.what());
  }
}

void Transfers::close_offer(const share::Offers::Ticket& offer) {
  stop_watching(offer);
  peers_->offers().close(offer);
}

void Transfers::close_offer(Offering& offering) {
  if (!offering.target_) return close_offer(offering.header_.offer);
  stop_watching(offering.header_.offer);
  peers_->writer().close(offering.header_.offer);
  offering.target_.reset();
}

// Of one that was declined and has failed since start_ferries() may be about to ask for its owner.
void Transfers::stop_watching(const share::Offers::Ticket& offer) noexcept {
  std::unique_lock lock(offerings_mutex_, std::defer_lock);
  if (peers_->offers().state(offer) == State::failed) lock.lock();
  Offering* const offering = open_[offer.line].exchange(nullptr, std::memory_order_acq_rel);
  if (offering != nullptr) offering->watched_ = false;
}

// On the helper thread.
engine::Task<> Transfers::look_for_declined() {
  const auto any_open = [this] {
    return packed_size_.load(std::memory_order_seq_cst) != 0 ||
           std::ranges::any_of(open_, [](const auto& each) { return each.load(std::memory_order_seq_cst) != nullptr; });
  };
  for (unsigned idle = 0;;) {
    const auto later = engine::Completion::after(between_looks);
    co_await later;
    if (any_open()) {
      idle = 0;
      start_ferries();
    } else if (++idle == most_unwatched_rounds) {
      // Who opens one sees that nobody looks, or is seen here.
      watches_.store(false, std::memory_order_seq_cst);
      if (!any_open() || watches_.exchange(true, std::memory_order_seq_cst)) co_return;
      idle = 0;
    }
  }
}

// An offer stays declined until Ferrying::carry(), which runs on this same thread, says otherwise, or it fails; and its offering stays until then, or takes
// the mutex.
void Transfers::start_ferries() {
  const auto& offers = peers_->offers();
  for (const Packed& packed : take_declined()) helper().spawn(copy_packed(packed));
  for (std::uint64_t line = 0; line < open_.size(); ++line) {
    if (open_[line].load(std::memory_order_relaxed) == nullptr) continue;
    if (!offers.declined(line)) continue;
    Offering* offering = nullptr;
    std::shared_ptr<void> owner;
    {
      const std::lock_guard lock(offerings_mutex_);
      if (!offers.declined(line)) continue;  // it has failed meanwhile, and the line may be another one's
      offering = open_[line].load(std::memory_order_acquire);
      if (offering != nullptr && !std::exchange(offering->copied_, true)) owner = offering->owner_.lock();
    }
    if (owner != nullptr) helper().spawn(copy_declined(*offering, std::move(owner)));
  }
}

// The helper thread may still say so where the receiver has died meanwhile.
std::exception_ptr Transfers::why_uncopied(const Offering& offering) {
  const std::lock_guard lock(offerings_mutex_);
  return offering.uncopied_;
}

// Whether it is this thread's to make a copy of it for its receiver.
bool Transfers::may_copy(Offering& offering) noexcept {
  const std::lock_guard lock(offerings_mutex_);
  return !std::exchange(offering.copied_, true);
}

}  // namespace crosslane::message
