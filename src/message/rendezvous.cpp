// Both sides of a payload that the receiver reads from the sender's GPU memory (TYPES, section 4.1). See transfers.h.
#include "base/error.h"
#include "base/log.h"
#include "message/chunks.h"
#include "message/transfers.h"
#include "mpi/status.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

// Of pinned memory that a payload for the host may take; larger ones come in chunks.
constexpr std::size_t most_to_host = std::size_t{64} << 20;

using State = share::Offers::State;

// The links move sectors: of shorter runs that lie apart a reader gets mostly gaps, so that of long messages packing them first is faster
// (8 of 32 bytes, 32 MiB between two H200: 394 us, packed 175; runs of 32 bytes 145, packed 207; 0.5 MiB alike).
constexpr std::size_t sector = 32, short_enough = std::size_t{1} << 20, far_apart = 4;

bool reads_well(const lane::Listed& list, std::size_t bytes) noexcept {
  return bytes <= short_enough || list.bytes / std::max<std::uint64_t>(list.runs, 1) >= sector;
}

bool reads_well(const kernel::Strided& shape, std::size_t bytes) noexcept {
  const std::span loops(shape.dimension, shape.dimensions);
  return bytes <= short_enough || shape.width >= sector || std::ranges::any_of(loops, [&](const auto& loop) {
           return static_cast<std::size_t>(std::abs(loop.stride)) < far_apart * shape.width;
         });
}

}  // namespace

std::optional<Header> Transfers::offer(const Buffer& buffer, Taste taste) {
  const bool strided = !buffer.layout->contiguous(buffer.count);
  const auto shape = strided ? buffer.layout->as_strided(buffer.count) : std::nullopt;
  const bool choosy = taste == Taste::choosy;
  if (shape && (!travels(*shape) || (choosy && !reads_well(*shape, buffer.bytes)))) return std::nullopt;
  std::optional<lane::Listed> list;
  std::optional<PeerMemory::Shown> list_shown;
  if (strided && !shape) {
    list = copier_.mover().listed(buffer.place.context, *buffer.layout, buffer.count);
    if (!list || !travels(*list) || (choosy && !reads_well(*list, buffer.bytes))) return std::nullopt;
    list_shown = peers_->show(list->data, 1);
    if (!list_shown) return std::nullopt;
  }
  const auto span = buffer.layout->span(buffer.count);
  const std::byte* const first = lane::byte_at(buffer.address, static_cast<std::ptrdiff_t>(span.begin));
  const auto shown = peers_->show(first, static_cast<std::size_t>(span.end - span.begin));
  if (!shown) return std::nullopt;
  auto header = open(buffer.bytes);
  if (!header) return std::nullopt;
  ++events_;
  const auto ticket = peers_->offers().open();
  if (!ticket) {
    tags_.give_back(header->tag);
    return std::nullopt;
  }
  header->offer = *ticket;
  header->exposed = shown->exposed;
  header->address = shown->address;
  if (shape) {
    header->strided = 1;
    header->shape = *shape;
    header->shape.offset -= span.begin;
  } else if (list) {
    header->listed = std::move(*list);
    header->listed.loops.offset -= span.begin;
    header->list = list_shown->exposed;
  }
  return header;
}

engine::Task<> Transfers::send_offered(Buffer buffer, Header header, int to, engine::Completion matched,
                                       const MPI_Status* status, std::optional<base::Duration> returns,
                                       engine::Watch watch, std::shared_ptr<void> kept) {
  auto& offers = peers_->offers();
  const auto ticket = header.offer;
  const auto over = engine::Completion::of(offers.word(ticket), share::Offers::value(ticket, State::declined));
  if (!returns && !over.done()) co_await either(over, matched);
  const bool withdrawn = status != nullptr && matched.done() && mpi::cancelled(mpi_, *status);
  // While other messages of this rank come and go, its peers are likely at work on this one's like.
  const base::Duration patience = std::min(patience_, returns.value_or(patience_));
  const base::Time end = base::now() + patience_;
  for (std::uint64_t seen = ~std::uint64_t{0}; !over.done() && !withdrawn && seen != events_ && base::now() < end;) {
    seen = events_;
    co_await either(over, engine::Completion::after(patience));
  }
  const Manner at_once{.patient = false, .matched = !returns};
  if (offers.state(ticket) == State::offered && !withdrawn) {
    // The offer stands until all is ready to be handed to MPI, which is then one step: the application may leave this task alone
    // at any time, in a call of MPI that waits for the receiver.
    const auto copy = std::make_shared<Buffer>();
    try {
      co_await to_host(buffer, 0, copy, watch);
    } catch (const base::Error&) {
      *copy = buffer;  // sent in chunks it meets that again, and the receiver is told
    }
    if (offers.keep(ticket)) {
      offers.close(ticket);
      auto sending = send_chunks(*copy, header, to, matched, at_once, watch, kept);
      co_await std::move(sending);
      co_return;
    }
  }
  if (!over.done() && !withdrawn) co_await over;  // the receiver reads
  const State state = offers.state(ticket);
  ++events_;
  offers.close(ticket);
  if (state == State::declined) {
    auto sending = send_chunks(buffer, header, to, matched, at_once, watch, kept);
    co_await std::move(sending);
    co_return;
  }
  co_await matched;
  tags_.give_back(header.tag);
  if (state == State::failed) throw reader_failure(watch, to);
}

base::Error Transfers::reader_failure(const engine::Watch& watch, int reader) {
  return {base::ErrorClass::other,
          "{}: the GPU of rank {} of MPI_COMM_WORLD failed while it read the buffer; its own error says why",
          watch.call, reader};
}

// A packed copy in host memory of what comes after `begin`; its address is as if all were there.
engine::Task<> Transfers::to_host(const Buffer& buffer, std::size_t begin, std::shared_ptr<Buffer> copy,
                                  const engine::Watch& watch) {
  lane::Batch batch(copier_, watch);
  const auto block = std::make_shared<lane::HostBlock>(batch.lend(buffer.place, buffer.bytes - begin));
  batch.to_host(buffer.place, block->data(), buffer.address, *buffer.layout, buffer.count, begin, buffer.bytes,
                lane::Form::packed);
  const auto copied = batch.completion();
  co_await written(copied, batch);
  copy->address = lane::byte_at(block->data(), -static_cast<std::ptrdiff_t>(begin));
  copy->bytes = buffer.bytes;
  copy->owner = block;
}

engine::Task<bool> Transfers::read(Header header, Buffer buffer, std::shared_ptr<Received> received,
                                   engine::Watch watch) {
  auto& offers = peers_->offers();
  const int owner = peers_->owner(header);
  if (!offers.take(owner, header.offer)) co_return false;
  ++events_;
  const bool listed = header.listed.entries != 0;
  const auto source = peers_->reach(header);
  const auto list = listed ? peers_->reach_list(header) : PeerMemory::Reached{};
  const auto kernels_here = [&] {
    try {
      return copier_.mover().prepare(peers_->place().context);
    } catch (const base::Error& error) {
      base::log(base::Topic::info, "irregular messages come through the host: {}", error.what());
      return false;
    }
  };
  const bool follows = !listed || (list.data != nullptr && kernels_here());
  // What goes to the host is copied there whole, so that the sender need not wait until this rank comes by again.
  if (source.data == nullptr || !follows || (!buffer.on_gpu && header.bytes > most_to_host)) {
    offers.end(owner, header.offer, State::declined);
    co_return false;
  }
  header.listed.data = list.data;
  const lane::Side from =
      header.strided != 0 ? lane::Side::of(source.data, header.shape) : lane::Side::packed(source.data);
  const std::size_t bytes = std::min<std::size_t>(header.bytes, buffer.bytes);
  received->truncated = header.bytes > buffer.bytes;
  std::exception_ptr failure;
  try {
    if (bytes == 0) {
      offers.end(owner, header.offer, State::done);
    } else if (buffer.on_gpu && listed) {
      lane::Batch batch(copier_, watch);
      const auto [place, memory] = reader_of(buffer);
      batch.follow(place, lane::Side::of(buffer.address, *buffer.layout, buffer.count), source.data, header.listed, 0,
                   bytes, memory);
      const auto done = end_behind(batch, place, owner, header.offer);
      co_await written(done, batch);
    } else if (buffer.on_gpu) {
      lane::Batch batch(copier_, watch);
      const auto done =
          read_to_gpu(batch, buffer, from, header.strided == 0 ? source.data : nullptr, 0, bytes, owner, header.offer);
      co_await written(done, batch);
    } else {
      co_await read_to_host(header, buffer, 0, bytes, source.data, header.offer, watch);
    }
    received->bytes = bytes;
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    offers.end(owner, header.offer, State::failed);
    std::rethrow_exception(failure);
  }
  co_return true;
}

// Enqueues the reading of bytes [begin, end) of the payload, and the end of the offer behind it. `contiguous` is where the payload lies in one
// piece, byte `begin` first; else null.
engine::Completion Transfers::read_to_gpu(lane::Batch& batch, const Buffer& buffer, const lane::Side& from,
                                          const std::byte* contiguous, std::size_t begin, std::size_t end, int owner,
                                          share::Offers::Ticket offer) {
  if (contiguous != nullptr && buffer.layout->contiguous(buffer.count)) {
    batch.pull(buffer.place, buffer.address, contiguous, *buffer.layout, buffer.count, begin, end);
    return end_behind(batch, buffer.place, owner, offer);
  }
  const auto [place, memory] = reader_of(buffer);
  batch.across(place, lane::Side::of(buffer.address, *buffer.layout, buffer.count), from, begin, end, memory);
  return end_behind(batch, place, owner, offer);
}

// Peers' memory is mapped where this rank lives. Kernels of another of its GPUs do not reach it; copies do.
Transfers::Reader Transfers::reader_of(const Buffer& buffer) const noexcept {
  const lane::Place home = peers_->place();
  if (buffer.place.context == home.context) return {buffer.place, lane::Memory::gpu};
  return {{home.context, home.device, buffer.place.settled}, lane::Memory::host};
}

// Enqueues the end of the offer behind what reads it.
engine::Completion Transfers::end_behind(lane::Batch& batch, const lane::Place& place, int owner,
                                         const share::Offers::Ticket& offer) {
  auto& word = peers_->offers().theirs(owner, offer);
  return batch.mark(place, word, peers_->address_of(word), share::Offers::value(offer, State::done));
}

// The same through pinned memory. All is enqueued before anything is waited for: the application may leave this task alone at any time.
// Of a packed stream `from` is where byte 0 of it would be.
engine::Task<> Transfers::read_to_host(const Header& header, const Buffer& buffer, std::size_t begin, std::size_t end,
                                       const std::byte* from, share::Offers::Ticket offer, const engine::Watch& watch) {
  struct Chunk {
    lane::HostBlock block;
    engine::Completion copied;
    std::size_t begin = 0, end = 0;
  };
  const lane::Place place = peers_->place();
  std::vector<Chunk> chunks;  // until the batch has waited, whatever happens
  lane::Batch batch(copier_, watch);
  for (std::size_t next = begin; next < end;) {
    Chunk chunk;
    chunk.begin = next;
    chunk.end = next = std::min<std::size_t>(next + header.chunk_bytes, end);
    chunk.block = batch.lend(place, chunk.end - chunk.begin);
    if (header.listed.entries != 0) {
      batch.fetch(place, chunk.block.data(), from, header.listed, chunk.begin, chunk.end);
    } else {
      // Of a packed stream a side is where the range begins.
      const lane::Side side = header.strided != 0
                                  ? lane::Side::of(from, header.shape)
                                  : lane::Side::packed(lane::byte_at(from, static_cast<std::ptrdiff_t>(chunk.begin)));
      batch.fetch(place, chunk.block.data(), side, chunk.begin, chunk.end);
    }
    chunk.copied = batch.completion();
    chunks.push_back(std::move(chunk));
  }
  const auto done = end_behind(batch, place, peers_->owner(header), offer);
  for (const Chunk& chunk : chunks) {
    co_await written(chunk.copied, batch);
    unpack(buffer, chunk.block.data(), chunk.begin, chunk.end);
  }
  co_await written(done, batch);
}

}  // namespace crosslane::message
