// Both sides of a payload that its sender packs, piece by piece, into its message window, and its receiver unpacks from there (TYPES,
// section 4.1). See transfers.h, and parcels.h for the blocks.
#include "base/error.h"
#include "base/log.h"
#include "message/chunks.h"
#include "message/transfers.h"
#include "mpi/status.h"

#include <algorithm>
#include <array>
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
      : buffer(std::move(payload)), header(sent), count(sent.pieces.count(sent.bytes)) {
    batch.emplace(copier, watch);
  }

  const Buffer buffer;
  const Header header;
  const std::uint64_t count;  // of pieces
  std::mutex mutex;           // guards all that follows
  std::optional<lane::Batch> batch;
  std::uint64_t enqueued = 0;  // pieces whose packing is, and their offers behind it
  bool stopped = false;        // no more will be
  bool reader_failed = false;

  /// Each piece has a block of its own.
  [[nodiscard]] bool alone() const noexcept { return count <= header.pieces.blocks; }
  [[nodiscard]] share::Offers::Ticket ticket(std::uint64_t piece) const noexcept { return header.pieces.ticket(piece); }
  [[nodiscard]] std::uint64_t so_far() {
    const std::lock_guard lock(mutex);
    return enqueued;
  }
  /// With the mutex held: the first piece that nobody has taken, or as many as are enqueued.
  [[nodiscard]] std::uint64_t first_untaken(const share::Offers& offers) const noexcept {
    std::uint64_t piece = enqueued > header.pieces.blocks ? enqueued - header.pieces.blocks : 0;
    while (piece < enqueued && offers.state(ticket(piece)) > State::kept) ++piece;
    return piece;
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
  const Pieces& pieces = packing.header.pieces;
  const auto ticket = packing.ticket(packing.enqueued);
  const std::uint64_t begin = pieces.begin(packing.enqueued);
  packing.batch->across(buffer.place, lane::Side::packed(peers_->parcels().memory() + pieces.offset(packing.enqueued)),
                        lane::Side::of(buffer.address, *buffer.layout, buffer.count), begin,
                        std::min(begin + pieces.piece_bytes, packing.header.bytes));
  auto& word = peers_->offers().word(ticket);
  static_cast<void>(
      packing.batch->mark(buffer.place, word, peers_->address_of(word), share::Offers::value(ticket, State::offered)));
  ++packing.enqueued;
}

Transfers::PackingPointer Transfers::pack(const Buffer& buffer, const Header& header, const engine::Watch& watch) {
  auto packing = std::make_shared<Packing>(copier_, watch, buffer, header);
  try {
    const std::lock_guard lock(packing->mutex);
    while (packing->enqueued < std::min(packing->count, header.pieces.blocks)) pack_next(*packing);
    if (packing->alone()) packing->batch.reset();  // its stream serves the next one meanwhile
  } catch (...) {
    packing->batch.reset();  // waits for what was enqueued
    abandon(packing);
    throw;
  }
  return packing;
}

void Transfers::abandon(const PackingPointer& packing) {
  peers_->parcels().release(packing->header.pieces, packing->header.bytes, packing->so_far(), true);
  tags_.give_back(packing->header.tag);
}

void Transfers::finish_packing(const PackingPointer& packing, const engine::Watch& watch) {
  engine_.wait(engine_.spawn(all_packed(packing)), watch);
}

// Of one whose pieces are all enqueued.
engine::Task<> Transfers::all_packed(PackingPointer packing) {
  const auto ticket = packing->ticket(packing->count - 1);
  const auto offered =
      engine::Completion::of(peers_->offers().word(ticket), share::Offers::value(ticket, State::offered));
  co_await written(offered, packing->buffer.place);
}

// Until nothing that was enqueued touches the buffer any more, or the GPU has failed.
engine::Task<> Transfers::settle(PackingPointer packing) {
  try {
    engine::Completion done;
    {
      const std::lock_guard lock(packing->mutex);
      if (packing->batch) done = packing->batch->completion();
    }
    if (packing->alone()) {
      auto packed = all_packed(packing);
      co_await std::move(packed);
    }
    co_await written(done, packing->buffer.place);
  } catch (const std::exception& error) {
    // Reported, or to be, by what waits for the copies.
    base::log(base::Topic::debug, "the copies of a message ended with: {}", error.what());
  }
}

// On the helper thread: a piece goes into a block once the one before it was read.
engine::Task<> Transfers::fill(PackingPointer packing) {
  const auto& offers = peers_->offers();
  for (std::uint64_t piece = packing->so_far(); piece < packing->count; ++piece) {
    const auto before = packing->ticket(piece - packing->header.pieces.blocks);
    const auto answered = engine::Completion::of(offers.word(before), share::Offers::value(before, State::kept));
    co_await answered;
    {
      const std::lock_guard lock(packing->mutex);
      if (packing->stopped) co_return;
    }
    const auto over = engine::Completion::of(offers.word(before), share::Offers::value(before, State::done));
    co_await over;
    const std::lock_guard lock(packing->mutex);
    if (packing->stopped) co_return;
    packing->reader_failed |= offers.state(before) == State::failed;
    pack_next(*packing);
  }
  auto packed = all_packed(packing);
  co_await std::move(packed);
}

// Something has failed. Returns the first piece that will not be read: its reader finds that it is kept, and that the chunks which stand
// for it and all others are empty.
engine::Task<std::uint64_t> Transfers::take_back(PackingPointer packing) {
  const auto& offers = peers_->offers();
  {
    const std::lock_guard lock(packing->mutex);
    packing->stopped = true;
  }
  auto settling = settle(packing);
  co_await std::move(settling);
  const std::uint64_t enqueued = packing->enqueued;  // nobody else changes it any more
  std::uint64_t piece = packing->first_untaken(offers);
  for (; piece < enqueued; ++piece) {
    const auto ticket = packing->ticket(piece);
    if (peers_->offers().keep(ticket)) co_return piece;
    if (offers.state(ticket) != State::free) continue;
    offers.withhold(ticket);
    co_return piece;
  }
  if (piece == packing->count) co_return piece;
  // All were taken: the next block is free once its reader is past it.
  const auto before = packing->ticket(piece - packing->header.pieces.blocks);
  const auto over = engine::Completion::of(offers.word(before), share::Offers::value(before, State::done));
  co_await over;
  offers.withhold(packing->ticket(piece));
  const std::lock_guard lock(packing->mutex);
  ++packing->enqueued;
  co_return piece;
}

engine::Task<> Transfers::send_packed(PackingPointer packing, int to, engine::Completion matched,
                                      const MPI_Status* status, engine::Watch watch, std::shared_ptr<void> kept) {
  auto& offers = peers_->offers();
  const Header header = packing->header;
  const auto cancelled = [&] { return status != nullptr && matched.done() && mpi::cancelled(mpi_, *status); };
  const auto copy = std::make_shared<Buffer>();
  std::uint64_t left = packing->count;  // the first piece that goes in chunks
  Manner at_once{.patient = false, .matched = true};
  std::exception_ptr failure;
  try {
    engine::Completion packed;
    if (packing->alone()) {
      auto packing_all = all_packed(packing);
      co_await std::move(packing_all);
    } else {
      packed = helper().spawn(fill(packing));
    }
    while (!packed.done() && !cancelled()) {
      if (!matched.done()) {
        co_await either(packed, matched);
        continue;
      }
      const std::uint64_t before = packing->so_far();
      co_await either(packed, engine::Completion::after(patience_));
      std::uint64_t first = 0;
      {
        const std::lock_guard lock(packing->mutex);
        first = packing->enqueued == before ? packing->first_untaken(offers) : before;
      }
      if (packed.done() || first == before) continue;  // it goes on, or its receiver is at it
      if (offers.state(packing->ticket(first)) != State::offered) {
        copier_.throw_if_failed(packing->buffer.place);
        continue;
      }
      // The offers stand until all is ready to be handed to MPI, which is then one step (rendezvous.cpp).
      co_await to_host(packing->buffer, header.pieces.begin(first), copy, watch);
      const std::lock_guard lock(packing->mutex);
      first = packing->first_untaken(offers);
      if (first == packing->enqueued || !offers.keep(packing->ticket(first))) continue;
      packing->stopped = true;
      left = first;
      break;
    }
    if (packed.done()) packed.rethrow();
  } catch (...) {
    at_once.failure = std::current_exception();
  }
  if (at_once.failure) {
    failure = at_once.failure;
    auto taking_back = take_back(packing);
    left = co_await std::move(taking_back);
  }
  const bool rest = left < packing->count;
  if (rest) {
    Header chunked = header;
    chunked.skipped = header.pieces.begin(left);
    try {
      auto sending = send_chunks(*copy, chunked, to, matched, at_once, watch, kept);
      co_await std::move(sending);
    } catch (...) {
      failure = std::current_exception();
    }
  } else {
    if (!matched.done()) co_await matched;
    tags_.give_back(header.tag);
  }
  {
    const std::lock_guard lock(packing->mutex);
    packing->stopped = true;
  }
  const bool withdrawn = rest || cancelled();
  if (withdrawn) {
    auto settling = settle(packing);
    co_await std::move(settling);
  }
  peers_->parcels().release(header.pieces, header.bytes, packing->so_far(), withdrawn);
  if (failure) std::rethrow_exception(failure);
  if (packing->reader_failed) throw reader_failure(watch, to);
}

// Returns how many bytes came so; the others come in chunks. A reader that fails goes on to take what is offered, for the sender waits for
// it.
engine::Task<std::uint64_t> Transfers::read_packed(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                                   engine::Watch watch) {
  auto& offers = peers_->offers();
  const Pieces& pieces = header.pieces;
  // Where nothing is taken, a sender that watches takes it back. Of what fits its window the sender has ended; it is lost here.
  const bool watched = pieces.count(header.bytes) > pieces.blocks;
  if (!peers_->reads_for(buffer.on_gpu ? &buffer.place : nullptr) && watched) co_return 0;
  const int owner = peers_->owner(header);
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  const lane::Place place = buffer.on_gpu ? buffer.place : peers_->place();
  // A stream for each block, lent with its first piece: the next pieces are read while the last threads of one end.
  std::array batches{lane::Batch(copier_, watch), lane::Batch(copier_, watch), lane::Batch(copier_, watch),
                     lane::Batch(copier_, watch)};
  static_assert(batches.size() == Pieces::most_blocks);
  std::array<engine::Completion, Pieces::most_blocks> reads;
  std::exception_ptr failure;
  const std::byte* base = nullptr;
  try {
    base = peers_->reach_window(header);
  } catch (...) {
    failure = std::current_exception();
    peers_->refuse(header.sender);
  }
  // Of those that the GPU was to write, none will be written.
  const auto end_taken = [&](std::uint64_t end) {
    if (!copier_.failed(place)) return;
    for (std::uint64_t piece = end > pieces.blocks ? end - pieces.blocks : 0; piece < end; ++piece)
      if (offers.state(owner, pieces.ticket(piece)) == State::taken)
        offers.end(owner, pieces.ticket(piece), State::failed);
  };
  std::uint64_t piece = 0;
  for (; piece < pieces.count(header.bytes); ++piece) {
    const auto ticket = pieces.ticket(piece);
    const auto offered =
        engine::Completion::of(offers.theirs(owner, ticket), share::Offers::value(ticket, State::offered));
    while (!offered.done()) {
      co_await either(offered, engine::Completion::after(std::chrono::seconds{1}));
      try {
        if (!offered.done() && !failure) copier_.throw_if_failed(place);
      } catch (...) {
        failure = std::current_exception();
        end_taken(piece);
      }
    }
    if (!offers.take(owner, ticket)) break;
    const std::uint64_t begin = pieces.begin(piece);
    const std::uint64_t end = std::min<std::uint64_t>(std::min(begin + pieces.piece_bytes, header.bytes), room);
    if (begin >= end || failure) {
      offers.end(owner, ticket, failure ? State::failed : State::done);
      continue;
    }
    const std::byte* const from = base + pieces.offset(piece);
    const std::size_t stream = piece % batches.size();
    try {
      if (buffer.on_gpu) {
        const auto where = read_to_gpu(batches[stream], buffer, lane::Side::packed(from), from, begin, end);
        reads[stream] = end_behind(batches[stream], where, owner, ticket);
      } else {
        co_await read_to_host(header, buffer, begin, end, lane::byte_at(from, -static_cast<std::ptrdiff_t>(begin)),
                              ticket, watch);
      }
    } catch (...) {
      failure = std::current_exception();
      offers.end(owner, ticket, State::failed);
      end_taken(piece);
    }
  }
  try {
    for (std::size_t i = 0; !failure && i < reads.size(); ++i) co_await written(reads[i], batches[i]);
  } catch (...) {
    failure = std::current_exception();
    end_taken(piece);
  }
  if (failure) std::rethrow_exception(failure);
  const std::uint64_t bytes = std::min(pieces.begin(piece), header.bytes);
  received->bytes = std::min<std::size_t>(bytes, room);
  co_return bytes;
}

}  // namespace crosslane::message
