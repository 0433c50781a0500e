// Both sides of a payload that its sender packs, piece by piece, into its message window, and its receiver unpacks from there (TYPES,
// section 4.1). See transfers.h, and parcels.h for the blocks.
#include "base/error.h"
#include "message/chunks.h"
#include "message/transfers.h"
#include "mpi/status.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace crosslane::message {

using State = share::Offers::State;

// Used by the call that sends and by the helper thread.
struct Transfers::Packing {
  Packing(lane::Copier& copier, const engine::Watch& watch, Buffer payload, const Header& sent)
      : buffer(std::move(payload)), header(sent), pieces(sent.pieces.count(sent.bytes)) {
    batch.emplace(copier, watch);
  }

  const Buffer buffer;
  const Header header;
  const std::uint64_t pieces;
  std::mutex mutex;  // guards all that follows
  std::optional<lane::Batch> batch;
  std::uint64_t offered = 0;  // pieces whose packing is enqueued, and their offers behind it
  bool stopped = false;       // no more will be

  /// Each piece has a block of its own.
  [[nodiscard]] bool alone() const noexcept { return pieces <= header.pieces.blocks; }
  [[nodiscard]] share::Offers::Ticket ticket(std::uint64_t piece) const noexcept { return header.pieces.ticket(piece); }
  /// Those before it were read, or are being read.
  [[nodiscard]] std::uint64_t oldest() const noexcept {
    return offered > header.pieces.blocks ? offered - header.pieces.blocks : 0;
  }
  [[nodiscard]] std::uint64_t so_far() {
    const std::lock_guard lock(mutex);
    return offered;
  }
  [[nodiscard]] engine::Completion last(const share::Offers& offers) const noexcept {
    const auto final_piece = ticket(pieces - 1);
    return engine::Completion::of(offers.word(final_piece), share::Offers::value(final_piece, State::offered));
  }
};

std::optional<Header> Transfers::reserve(std::size_t bytes) {
  const auto pieces = peers_->parcels().take(bytes);
  if (!pieces) return std::nullopt;
  auto header = open(bytes);
  if (!header) {
    peers_->parcels().release(*pieces, bytes, 0, true);
    return std::nullopt;
  }
  header->pieces = *pieces;
  return header;
}

// With its mutex held.
void Transfers::pack_next(Packing& packing) {
  const Buffer& buffer = packing.buffer;
  const Header& header = packing.header;
  const auto ticket = packing.ticket(packing.offered);
  const std::uint64_t begin = packing.offered * header.pieces.bytes;
  const std::uint64_t end = std::min(begin + header.pieces.bytes, header.bytes);
  std::byte* const block = peers_->parcels().memory() + header.pieces.offset(packing.offered);
  packing.batch->across(buffer.place, lane::Side::packed(block),
                        lane::Side::of(buffer.address, *buffer.layout, buffer.count), begin, end);
  auto& word = peers_->offers().word(ticket);
  static_cast<void>(
      packing.batch->mark(buffer.place, word, peers_->address_of(word), share::Offers::value(ticket, State::offered)));
  ++packing.offered;
}

Transfers::PackingPointer Transfers::pack(const Buffer& buffer, const Header& header, const engine::Watch& watch) {
  auto packing = std::make_shared<Packing>(copier_, watch, buffer, header);
  try {
    const std::lock_guard lock(packing->mutex);
    while (packing->offered < std::min(packing->pieces, header.pieces.blocks)) pack_next(*packing);
    if (packing->alone()) packing->batch.reset();  // its stream serves the next one meanwhile
  } catch (...) {
    abandon(packing);
    throw;
  }
  return packing;
}

engine::Completion Transfers::packed(const Packing& packing) { return packing.last(peers_->offers()); }

void Transfers::abandon(const PackingPointer& packing) {
  peers_->parcels().release(packing->header.pieces, packing->header.bytes, packing->so_far(), true);
  tags_.give_back(packing->header.tag);
}

// On the helper thread: a piece goes into a block once the one before it was read.
engine::Task<> Transfers::fill(PackingPointer packing) {
  const auto& offers = peers_->offers();
  for (std::uint64_t piece = packing->so_far(); piece < packing->pieces; ++piece) {
    const auto before = packing->ticket(piece - packing->header.pieces.blocks);
    const auto answered = engine::Completion::of(offers.word(before), share::Offers::value(before, State::kept));
    co_await answered;
    if (offers.state(before) == State::kept) co_return;
    const auto over = engine::Completion::of(offers.word(before), share::Offers::value(before, State::declined));
    co_await over;
    if (offers.state(before) == State::failed) co_return;  // its reader's GPU, and nobody reads on
    const std::lock_guard lock(packing->mutex);
    if (packing->stopped) co_return;
    pack_next(*packing);
  }
  co_await packing->last(offers);
}

// Something has failed. A reader finds that instead of the first piece that is not packed.
engine::Task<> Transfers::break_off(PackingPointer packing) {
  const auto& offers = peers_->offers();
  std::uint64_t piece = 0, offered = 0;
  {
    const std::lock_guard lock(packing->mutex);
    packing->stopped = true;
    piece = packing->oldest();
    offered = packing->offered;
  }
  while (piece < offered && offers.state(packing->ticket(piece)) != State::free) ++piece;
  if (piece == packing->pieces) co_return;
  if (piece == offered) {
    const auto before = packing->ticket(piece - packing->header.pieces.blocks);
    const auto over = engine::Completion::of(offers.word(before), share::Offers::value(before, State::declined));
    co_await over;
  }
  offers.fail(packing->ticket(piece));
}

// Before all was read: what is left nobody asks for.
bool Transfers::reader_failed(Packing& packing) {
  const std::lock_guard lock(packing.mutex);
  for (std::uint64_t piece = packing.oldest(); piece < packing.offered; ++piece)
    if (peers_->offers().state(packing.ticket(piece)) == State::failed) return packing.offered < packing.pieces;
  return false;
}

engine::Task<> Transfers::send_packed(PackingPointer packing, int to, engine::Completion matched,
                                      const MPI_Status* status, engine::Watch watch, std::shared_ptr<void> kept) {
  auto& offers = peers_->offers();
  const Header header = packing->header;
  const auto cancelled = [&] { return status != nullptr && matched.done() && mpi::cancelled(mpi_, *status); };
  std::exception_ptr failure;
  try {
    const bool alone = packing->alone();
    const engine::Completion packed = alone ? packing->last(offers) : helper_().spawn(fill(packing));
    while (alone && !packed.done()) {
      co_await either(packed, engine::Completion::after(std::chrono::seconds{1}));
      if (!packed.done()) copier_.throw_if_failed(packing->buffer.place);
    }
    while (!packed.done() && !cancelled()) {
      if (!matched.done()) {
        co_await either(packed, matched);
        continue;
      }
      const std::uint64_t before = packing->so_far();
      co_await either(packed, engine::Completion::after(patience_));
      if (packed.done() || packing->so_far() != before) continue;
      // The offers stand until all is ready to be handed to MPI, which is then one step (rendezvous.cpp).
      std::uint64_t first = packing->oldest();
      while (first < before && offers.state(packing->ticket(first)) > State::kept) ++first;
      if (first == before) continue;  // the receiver is at it
      const auto copy = std::make_shared<Buffer>();
      co_await to_host(packing->buffer, first * header.pieces.bytes, copy, watch);
      Header rest = header;
      {
        const std::lock_guard lock(packing->mutex);
        while (first < packing->offered && offers.state(packing->ticket(first)) > State::kept) ++first;
        if (first == packing->offered || !offers.keep(packing->ticket(first))) continue;
        packing->stopped = true;
        rest.skipped = first * header.pieces.bytes;
      }
      const Manner at_once{.patient = false, .matched = true};
      auto sending = send_chunks(*copy, rest, to, matched, at_once, watch, kept);
      co_await std::move(sending);
      peers_->parcels().release(header.pieces, header.bytes, packing->so_far(), true);
      co_return;
    }
    packed.rethrow();
  } catch (...) {
    failure = std::current_exception();
  }
  const bool unread = !packing->alone() && reader_failed(*packing);
  if (failure && !unread) {
    auto breaking = break_off(packing);
    co_await std::move(breaking);
  }
  if (!matched.done()) co_await matched;
  {
    const std::lock_guard lock(packing->mutex);
    packing->stopped = true;
  }
  peers_->parcels().release(header.pieces, header.bytes, packing->so_far(), unread || cancelled());
  tags_.give_back(header.tag);
  if (failure) std::rethrow_exception(failure);
  if (unread) throw reader_failure(watch, to);
}

// Returns how many bytes came so; the others come in chunks.
engine::Task<std::uint64_t> Transfers::read_packed(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                                   engine::Watch watch) {
  auto& offers = peers_->offers();
  const int owner = peers_->owner(header);
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  const std::byte* const base = peers_->reach_window(header);
  lane::Batch batch(copier_, watch);
  engine::Completion read;
  std::uint64_t piece = 0;
  for (; piece < header.pieces.count(header.bytes); ++piece) {
    const auto ticket = header.pieces.ticket(piece);
    auto& word = offers.theirs(owner, ticket);
    const auto offered = engine::Completion::of(word, share::Offers::value(ticket, State::offered));
    if (!offered.done()) co_await offered;
    if (!offers.take(owner, ticket)) break;
    const std::uint64_t begin = piece * header.pieces.bytes;
    const std::uint64_t end = std::min<std::uint64_t>(std::min(begin + header.pieces.bytes, header.bytes), room);
    if (begin >= end) {
      offers.end(owner, ticket, State::done);
      continue;
    }
    const std::byte* const from = base + header.pieces.offset(piece);
    std::exception_ptr failure;
    try {
      if (!buffer.on_gpu) {
        co_await read_to_host(header, buffer, begin, end, lane::byte_at(from, -static_cast<std::ptrdiff_t>(begin)),
                              watch);
        offers.end(owner, ticket, State::done);
        continue;
      }
      if (buffer.layout->contiguous(buffer.count)) {
        batch.to_gpu(buffer.place, buffer.address, from, *buffer.layout, buffer.count, begin, end, lane::Form::packed);
      } else {
        batch.across(buffer.place, lane::Side::of(buffer.address, *buffer.layout, buffer.count),
                     lane::Side::packed(from), begin, end);
      }
      read = batch.mark(buffer.place, word, peers_->address_of(word), share::Offers::value(ticket, State::done));
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      offers.end(owner, ticket, State::failed);
      std::rethrow_exception(failure);
    }
  }
  const std::uint64_t bytes = std::min(piece * header.pieces.bytes, header.bytes);
  const bool broken = bytes < header.bytes && offers.state(owner, header.pieces.ticket(piece)) == State::failed;
  co_await written(read, batch);
  received->failed = broken;
  received->bytes = broken ? 0 : std::min<std::size_t>(bytes, room);
  co_return broken ? header.bytes : bytes;
}

}  // namespace crosslane::message
