// Both sides of a payload that its sender packs, piece by piece, into its message window, and its receiver unpacks from there (TYPES,
// section 4.1). See transfers.h, and parcels.h for the blocks.
#include "base/error.h"
#include "base/log.h"
#include "message/sides.h"
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
  bool withdrawn = false;      // what nobody has taken
  bool copying = false;        // what is left, to the host: store()
  bool reader_failed = false;

  /// Each piece has a block of its own.
  [[nodiscard]] bool alone() const noexcept { return count <= header.pieces.blocks; }
  [[nodiscard]] share::Offers::Ticket ticket(std::uint64_t piece) const noexcept { return header.pieces.ticket(piece); }
  [[nodiscard]] std::uint64_t so_far() {
    const std::lock_guard lock(mutex);
    return enqueued;
  }
  [[nodiscard]] bool is_stopped() {
    const std::lock_guard lock(mutex);
    return stopped;
  }
  /// With the mutex held: the first piece that nobody has taken, or as many as are enqueued.
  [[nodiscard]] std::uint64_t first_untaken(const share::Offers& offers) const noexcept {
    std::uint64_t piece = enqueued > header.pieces.blocks ? enqueued - header.pieces.blocks : 0;
    while (piece < enqueued && offers.state(ticket(piece)) > State::kept) ++piece;
    return piece;
  }
};

std::optional<Header> Transfers::reserve(std::size_t bytes) {
  if (!has_helper()) return std::nullopt;
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
  engine_.run(all_packed(packing), watch);
}

// Of one whose pieces are all enqueued.
engine::Task<> Transfers::all_packed(PackingPointer packing) {
  const auto ticket = packing->ticket(packing->count - 1);
  const auto offered = peers_->offers().reached(ticket, State::offered);
  co_await written(offered, copier_, packing->buffer.place);
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
    co_await written(done, copier_, packing->buffer.place);
  } catch (const std::exception& error) {
    // Reported, or to be, by what waits for the copies.
    base::log(base::Topic::debug, "the copies of a message ended with: {}", error.what());
  }
}

// A piece that was taken, or a later word of it: until its receiver has read or declined it. One that has died never does.
engine::Task<> Transfers::ended_or_dead(share::Offers::Ticket piece, int to) {
  const auto& offers = peers_->offers();
  const auto over = offers.reached(piece, State::declined);
  while (!over.done()) {
    co_await over.or_after(between_questions);
    if (!over.done() && !peers_->alive(to)) offers.fail(world_.directory().local_rank(), piece);
  }
}

// On the helper thread: a piece goes into a block once the one before it was read.
engine::Task<> Transfers::fill(PackingPointer packing, int to, engine::Watch watch) {
  const auto& offers = peers_->offers();
  std::exception_ptr failure;
  try {
    for (std::uint64_t piece = packing->so_far(); piece < packing->count; ++piece) {
      const auto before = packing->ticket(piece - packing->header.pieces.blocks);
      const auto answered = offers.reached(before, State::kept);
      co_await answered;
      if (packing->is_stopped()) co_return;
      auto ending = ended_or_dead(before, to);
      co_await std::move(ending);
      // Unless the sender is at it already.
      while (offers.declined(before)) {
        auto storing = store(packing, to, 0, watch);
        const auto stored = co_await std::move(storing);
        if (stored != nullptr || packing->is_stopped()) co_return;
        const auto later = engine::Completion::after(std::chrono::microseconds{50});
        co_await later;
      }
      const std::lock_guard lock(packing->mutex);
      if (packing->stopped) co_return;
      packing->reader_failed |= offers.state(before) == State::failed;
      pack_next(*packing);
    }
    auto packed = all_packed(packing);
    co_await std::move(packed);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) co_return;
  auto breaking = break_off(packing, to);
  co_await std::move(breaking);
  std::rethrow_exception(failure);
}

// What comes from that piece on goes through the host. Null where its receiver reads on, which it may do until the copy is there, or
// where another thread makes one.
engine::Task<Ferrying::CopyPointer> Transfers::store(PackingPointer packing, int to, std::uint64_t piece,
                                                     engine::Watch watch) {
  auto& offers = peers_->offers();
  {
    const std::lock_guard lock(packing->mutex);
    if (packing->stopped || std::exchange(packing->copying, true)) co_return nullptr;
  }
  const auto copy = std::make_shared<Buffer>();
  const auto stored = std::make_shared<Ferrying::Copy>(packing->ticket(piece), to);
  std::exception_ptr failure;
  try {
    const std::uint64_t begin = packing->header.pieces.begin(piece);
    co_await to_host(copier_, packing->buffer, begin, copy, watch);
    stored->payload.emplace(copy->address + begin, copy->address + copy->bytes);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(packing->mutex);
  packing->copying = false;
  if (failure) std::rethrow_exception(failure);
  if (packing->stopped) co_return nullptr;
  const auto ticket = packing->ticket(piece);
  if (!offers.declined(ticket) && !offers.store(ticket)) co_return nullptr;
  packing->stopped = packing->withdrawn = true;
  ferrying_.serve(stored);
  co_return stored;
}

// Something has failed: the receiver finds so where it would have read on.
engine::Task<> Transfers::break_off(PackingPointer packing, int to) {
  auto& offers = peers_->offers();
  {
    const std::lock_guard lock(packing->mutex);
    if (std::exchange(packing->stopped, true)) co_return;
    packing->withdrawn = true;
  }
  auto settling = settle(packing);
  co_await std::move(settling);
  // Nobody else changes this any more.
  const std::uint64_t enqueued = packing->enqueued, blocks = packing->header.pieces.blocks;
  for (std::uint64_t piece = enqueued > blocks ? enqueued - blocks : 0; piece < packing->count; ++piece) {
    const auto ticket = packing->ticket(piece);
    if (piece == enqueued) {
      const std::lock_guard lock(packing->mutex);
      ++packing->enqueued;
    }
    bool ends = offers.store(ticket);
    if (!ends && offers.state(ticket) == State::free) {
      offers.withhold(ticket);
      ends = true;
    }
    if (!ends) {
      auto ending = ended_or_dead(ticket, to);
      co_await std::move(ending);
      ends = offers.declined(ticket).has_value();
    }
    if (!ends) continue;
    ferrying_.serve(std::make_shared<Ferrying::Copy>(ticket, to));
    co_return;
  }
}

engine::Task<> Transfers::send_packed(PackingPointer packing, int to, engine::Completion matched,
                                      const MPI_Status* status, engine::Watch watch,
                                      [[maybe_unused]] std::shared_ptr<void> alive) {
  auto& offers = peers_->offers();
  const Header header = packing->header;
  const auto cancelled = [&] { return status != nullptr && matched.done() && mpi::cancelled(mpi_, *status); };
  std::exception_ptr failure;
  engine::Completion packed;
  try {
    if (packing->alone()) {
      lookout_.watch(Lookout::Packed{header.pieces, header.bytes, packing->buffer.place, to});
      auto packing_all = all_packed(packing);
      co_await std::move(packing_all);
    } else {
      packed = helper().spawn(fill(packing, to, watch));
    }
    for (Ferrying::CopyPointer stored; stored == nullptr && !packed.done() && !cancelled();) {
      if (!matched.done()) {
        co_await either(packed, matched);
        continue;
      }
      const std::uint64_t before = packing->so_far();
      co_await packed.or_after(patience_);
      std::uint64_t first = 0;
      {
        const std::lock_guard lock(packing->mutex);
        first = packing->enqueued == before ? packing->first_untaken(offers) : before;
      }
      if (packed.done() || first == before) continue;  // it goes on, or its receiver is at it
      // A receiver that has taken the first piece may be about to decline it.
      if (first != 0 && before <= header.pieces.blocks && offers.state(packing->ticket(0)) < State::done) continue;
      if (offers.state(packing->ticket(first)) != State::offered) {
        copier_.throw_if_failed(packing->buffer.place);
        continue;
      }
      bool is_short = false;
      try {
        auto storing = store(packing, to, first, watch);
        stored = co_await std::move(storing);
      } catch (const std::exception& error) {
        is_short = base::is_shortage(error);
        if (!is_short) throw;
        base::log(base::Topic::debug, "{}: no copy of a message for a receiver that is late: {}", watch.call,
                  error.what());
      }
      if (is_short) co_await packed.or_after(std::chrono::milliseconds{10});
      if (stored == nullptr) continue;
      outstanding_.fetch_add(1, std::memory_order_relaxed);
      engine_.spawn(hasten_outstanding(stored));
    }
    if (packed.done()) packed.rethrow();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    auto breaking = break_off(packing, to);
    co_await std::move(breaking);
    try {
      co_await packed;  // the helper thread may have been the first to find it
    } catch (const std::exception& second) {
      base::log(base::Topic::debug, "{}: packing failed, too: {}", watch.call, second.what());
    }
  }
  {
    const std::lock_guard lock(packing->mutex);
    packing->stopped = true;
  }
  if (!matched.done()) co_await matched;
  tags_.give_back(header.tag);
  const bool withdrawn = packing->withdrawn || cancelled();
  if (withdrawn) {
    auto settling = settle(packing);
    co_await std::move(settling);
  }
  peers_->parcels().release(header.pieces, header.bytes, packing->so_far(), withdrawn);
  if (failure) std::rethrow_exception(failure);
  if (packing->reader_failed) throw reader_failure(watch, to);
}

// Returns how many pieces came so; the others are asked for by their first one's offer, and come by the ferry: all, where this rank cannot read
// them. A reader that fails goes on to
// take what is offered, for the sender waits for it.
engine::Task<std::uint64_t> Receiver::read_packed(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                                  engine::Watch watch) {
  auto& offers = peers_->offers();
  const Pieces& pieces = header.pieces;
  bool reads = peers_->reads_for(buffer.on_gpu ? &buffer.place : nullptr);
  const int owner = peers_->owner(header);
  const std::size_t room = buffer.bytes;
  received->truncated = header.bytes > room;
  const lane::Place place = buffer.on_gpu ? buffer.place : peers_->place();
  // A stream for each block, lent with its first piece: the next pieces are read while the last threads of one end.
  std::array batches{lane::Batch(copier_, watch), lane::Batch(copier_, watch), lane::Batch(copier_, watch),
                     lane::Batch(copier_, watch)};
  static_assert(batches.size() == Pieces::most_blocks);
  std::array<engine::Completion, Pieces::most_blocks> ends;
  std::exception_ptr failure;
  const std::byte* base = nullptr;
  try {
    if (reads) base = peers_->reach_window(header);
  } catch (const std::exception& error) {
    reads = false;
    const bool passes = peers_->may_open_later(header.sender);
    if (!passes) peers_->refuse(header.sender);
    base::log(passes ? base::Topic::debug : base::Topic::warning,
              "{}: the message window of rank {} could not be mapped: {} through the host ({})", watch.call,
              header.sender, passes ? "this message comes" : "its messages come from now on", error.what());
  }
  // Of those that the GPU was to write, none will be written.
  const auto end_taken = [&](std::uint64_t end) {
    if (!copier_.failed(place)) return;
    for (std::uint64_t piece = end > pieces.blocks ? end - pieces.blocks : 0; piece < end; ++piece)
      if (offers.state(owner, pieces.ticket(piece)) == State::taken) offers.fail(owner, pieces.ticket(piece));
  };
  std::uint64_t piece = 0;
  for (; piece < pieces.count(header.bytes); ++piece) {
    const auto ticket = pieces.ticket(piece);
    const auto offered = offers.reached(owner, ticket, State::offered);
    bool gone = false;
    while (!offered.done() && !gone) {
      co_await offered.or_after(between_questions);
      if (offered.done()) break;
      try {
        throw_if_gone(header, watch);
        if (reads && !failure) copier_.throw_if_failed(place);
      } catch (...) {
        failure = std::current_exception();
        end_taken(piece);
        gone = !peers_->alive(header);
      }
    }
    if (gone || !offers.take(owner, ticket) || !reads) break;
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
        ends[stream] = end_behind(batches[stream], where, owner, ticket);
      } else {
        co_await read_to_host(header, buffer, begin, end, lane::byte_at(from, -static_cast<std::ptrdiff_t>(begin)),
                              ticket, watch);
      }
    } catch (...) {
      failure = std::current_exception();
      offers.fail(owner, ticket);
      end_taken(piece);
    }
  }
  try {
    for (std::size_t i = 0; !failure && i < ends.size(); ++i) co_await written(ends[i], batches[i]);
  } catch (...) {
    failure = std::current_exception();
    end_taken(piece);
  }
  if (failure && piece < pieces.count(header.bytes)) offers.fail(owner, pieces.ticket(piece));
  if (failure) std::rethrow_exception(failure);
  received->bytes = std::min<std::size_t>(std::min(pieces.begin(piece), header.bytes), room);
  co_return piece;
}

}  // namespace crosslane::message
