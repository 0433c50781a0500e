// See lookout.h.
#include "message/lookout.h"

#include "base/error.h"
#include "base/log.h"
#include "message/sides.h"

#include <algorithm>
#include <chrono>

namespace crosslane::message {
namespace {

using State = share::Offers::State;

// How often the helper thread looks for declined offers while there are any, which costs it some microseconds; and of these rounds without an
// offer, before they end: a program that sends now and then shall not begin them each time.
constexpr base::Duration between_looks = std::chrono::milliseconds{10};
constexpr unsigned most_unwatched_rounds = 32;

}  // namespace

Lookout::~Lookout() {
  for (const auto& open : open_)
    if (Payload* const payload = open.load(std::memory_order_relaxed)) payload->watched_ = false;
}

void Lookout::watch(Payload& payload) noexcept {
  payload.watched_ = true;
  open_[payload.offer.line].store(&payload, std::memory_order_seq_cst);
  begin();
}

void Lookout::begin() noexcept {
  if (looks_.load(std::memory_order_seq_cst) || looks_.exchange(true, std::memory_order_seq_cst)) return;
  try {
    helper_().spawn(look());
  } catch (const std::exception& error) {
    looks_.store(false, std::memory_order_seq_cst);
    base::log(base::Topic::warning, "no helper thread looks after messages whose receivers cannot read them: {}",
              error.what());
  }
}

// Of one that was declined and has failed since start_copies() may be about to ask for its owner.
void Lookout::stop(const share::Offers::Ticket& offer) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (peers_->offers().state(offer) == State::failed) lock.lock();
  Payload* const payload = open_[offer.line].exchange(nullptr, std::memory_order_acq_rel);
  if (payload != nullptr) payload->watched_ = false;
}

void Lookout::forget(Payload& payload) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(payload.watched_, false)) open_[payload.offer.line].store(nullptr, std::memory_order_relaxed);
}

bool Lookout::may_copy(Payload& payload) noexcept {
  const std::lock_guard lock(mutex_);
  return !std::exchange(payload.copied_, true);
}

// The helper thread may still say so where the receiver has died meanwhile.
std::exception_ptr Lookout::why_uncopied(const Payload& payload) {
  const std::lock_guard lock(mutex_);
  return payload.uncopied_;
}

void Lookout::watch(const Packed& packed) {
  {
    const std::lock_guard lock(packed_mutex_);
    packed_.push_back(packed);
    packed_size_.store(packed_.size(), std::memory_order_seq_cst);
  }
  begin();
}

// On the helper thread.
engine::Task<> Lookout::look() {
  const auto any_open = [this] {
    return packed_size_.load(std::memory_order_seq_cst) != 0 ||
           std::ranges::any_of(open_, [](const auto& each) { return each.load(std::memory_order_seq_cst) != nullptr; });
  };
  for (unsigned idle = 0;;) {
    const auto later = engine::Completion::after(between_looks);
    co_await later;
    if (any_open()) {
      idle = 0;
      start_copies();
    } else if (++idle == most_unwatched_rounds) {
      // Who opens one sees that nobody looks, or is seen here.
      looks_.store(false, std::memory_order_seq_cst);
      if (!any_open() || looks_.exchange(true, std::memory_order_seq_cst)) co_return;
      idle = 0;
    }
  }
}

// An offer stays declined until Ferrying::carry(), which runs on this same thread, says otherwise, or it fails; and its payload stays until then, or takes
// the mutex.
void Lookout::start_copies() noexcept {
  start_packed();
  const auto& offers = peers_->offers();
  for (std::uint64_t line = 0; line < open_.size(); ++line) {
    if (open_[line].load(std::memory_order_relaxed) == nullptr) continue;
    if (!offers.declined(line)) continue;
    Payload* payload = nullptr;
    std::shared_ptr<void> owner;
    {
      const std::lock_guard lock(mutex_);
      if (!offers.declined(line)) continue;  // it has failed meanwhile, and the line may be another one's
      payload = open_[line].load(std::memory_order_acquire);
      if (payload != nullptr && !std::exchange(payload->copied_, true)) owner = payload->owner.lock();
    }
    if (owner == nullptr || start(*payload, owner)) continue;
    const std::lock_guard lock(mutex_);
    payload->copied_ = false;
  }
}

// What there is no memory for is not begun; the next look tries again.
bool Lookout::start(Payload& payload, std::shared_ptr<void> owner) noexcept {
  try {
    const auto copied = std::make_shared<Ferrying::Copy>(payload.offer, payload.to);
    helper_().spawn(copy_payload(payload, std::move(owner), copied, ferrying_.carry(copied)));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool Lookout::start(const Packed& packed) noexcept {
  try {
    const auto copied = std::make_shared<Ferrying::Copy>(packed.pieces.ticket(0), packed.to);
    helper_().spawn(copy_packed(packed, copied, ferrying_.carry(copied)));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Nobody asks for the others that are forgotten: they were read, or nobody receives them.
void Lookout::start_packed() noexcept {
  if (packed_size_.load(std::memory_order_relaxed) == 0) return;
  const auto& offers = peers_->offers();
  const std::lock_guard lock(packed_mutex_);
  std::erase_if(packed_, [&](const Packed& packed) {
    const auto ticket = packed.pieces.ticket(0);
    if (offers.declined(ticket)) return start(packed);
    return offers.state(ticket) == State::kept || offers.reached(ticket, State::done).done();
  });
  packed_size_.store(packed_.size(), std::memory_order_seq_cst);
}

// On the helper thread: a copy of an offered payload that was declined. `owner` holds it, and its memory.
engine::Task<> Lookout::copy_payload(Payload& payload, std::shared_ptr<void> owner, Ferrying::CopyPointer copied,
                                     engine::Task<> carrying) {
  try {
    const auto copy = std::make_shared<Buffer>();
    co_await to_host(copier_, payload.buffer, 0, copy, payload.watch);
    copied->payload.emplace(copy->address, copy->address + copy->bytes);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    payload.uncopied_ = std::current_exception();
  }
  // Once that has said so the send is over for its sender; until then, that has it, too, so that nothing ends on this thread.
  owner.reset();
  co_await std::move(carrying);
}

// On the helper thread: what its receiver cannot read in its blocks, and has declined.
engine::Task<> Lookout::copy_packed(Packed packed, Ferrying::CopyPointer copied, engine::Task<> carrying) {
  const engine::Watch watch{.call = "a packed message that its receiver cannot read"};
  const Pieces& pieces = packed.pieces;
  try {
    const auto offered = peers_->offers().reached(pieces.ticket(pieces.count(packed.bytes) - 1), State::offered);
    co_await written(offered, copier_, packed.place);
    auto copying = copy_blocks(packed, *copied, watch);
    co_await std::move(copying);
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "a message of {} bytes for rank {} of MPI_COMM_WORLD is lost: {}", packed.bytes,
              packed.to, error.what());
  }
  co_await std::move(carrying);
}

engine::Task<> Lookout::copy_blocks(const Packed& packed, Ferrying::Copy& copied, const engine::Watch& watch) {
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

}  // namespace crosslane::message
