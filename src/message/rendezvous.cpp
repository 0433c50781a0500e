// Both sides of a payload that the receiver reads from the sender's GPU memory (TYPES, section 4.1). See transfers.h.
#include "base/error.h"
#include "message/chunks.h"
#include "message/transfers.h"
#include "mpi/status.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

// So long a payload waits for its receiver that need not be matched: no longer than copying it to the host takes.
constexpr auto short_patience = std::chrono::microseconds{200};

using State = share::Offers::State;

}  // namespace

std::optional<Header> Transfers::offer(const Buffer& buffer) {
  const auto span = buffer.layout->span(buffer.count);
  const std::byte* const first = lane::byte_at(buffer.address, static_cast<std::ptrdiff_t>(span.begin));
  const auto shown = peers_->show(first, static_cast<std::size_t>(span.end - span.begin));
  if (!shown) return std::nullopt;
  auto header = open(buffer.bytes);
  if (!header) return std::nullopt;
  const auto ticket = peers_->offers().open();
  if (!ticket) {
    tags_.give_back(header->tag);
    return std::nullopt;
  }
  header->offer = *ticket;
  header->exposed = shown->exposed;
  header->address = shown->address;
  if (!buffer.layout->contiguous(buffer.count)) {
    header->strided = 1;
    header->shape = buffer.layout->as_strided(buffer.count).value();
    header->shape.offset -= span.begin;
  }
  return header;
}

engine::Task<> Transfers::send_offered(Buffer buffer, Header header, int to, engine::Completion matched,
                                       const MPI_Status* status, bool returns, engine::Watch watch,
                                       std::shared_ptr<void> kept) {
  auto& offers = peers_->offers();
  const auto ticket = header.offer;
  const auto over = engine::Completion::of(offers.word(ticket), share::Offers::value(ticket, State::declined));
  if (!returns && !over.done()) co_await either(over, matched);
  const bool withdrawn = status != nullptr && matched.done() && mpi::cancelled(mpi_, *status);
  if (!over.done() && !withdrawn)
    co_await either(
        over, engine::Completion::after(returns ? std::min<base::Duration>(patience_, short_patience) : patience_));
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
  const auto source = peers_->reach(header);
  if (source.data == nullptr) {
    offers.end(owner, header.offer, State::declined);
    co_return false;
  }
  const lane::Side from =
      header.strided != 0 ? lane::Side::of(source.data, header.shape) : lane::Side::packed(source.data);
  const std::size_t bytes = std::min<std::size_t>(header.bytes, buffer.bytes);
  received->truncated = header.bytes > buffer.bytes;
  std::exception_ptr failure;
  try {
    if (bytes == 0) {
      offers.end(owner, header.offer, State::done);
    } else if (buffer.on_gpu) {
      lane::Batch batch(copier_, watch);
      if (header.strided == 0 && buffer.layout->contiguous(buffer.count)) {
        batch.to_gpu(buffer.place, buffer.address, source.data, *buffer.layout, buffer.count, 0, bytes,
                     lane::Form::packed);
      } else {
        batch.across(buffer.place, lane::Side::of(buffer.address, *buffer.layout, buffer.count), from, 0, bytes);
      }
      auto& word = offers.theirs(owner, header.offer);
      const auto done =
          batch.mark(buffer.place, word, peers_->address_of(word), share::Offers::value(header.offer, State::done));
      co_await written(done, batch);
    } else {
      co_await read_to_host(header, buffer, 0, bytes, source.data, watch);
      offers.end(owner, header.offer, State::done);
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

// Through pinned memory, a few chunks at a time. Of a packed stream `from` is where byte 0 of it would be.
engine::Task<> Transfers::read_to_host(const Header& header, const Buffer& buffer, std::size_t begin, std::size_t end,
                                       const std::byte* from, const engine::Watch& watch) {
  struct Slot {
    lane::HostBlock block;
    engine::Completion copied;
    std::size_t begin = 0, end = 0;
  };
  const lane::Place place = peers_->place();
  const bool dense = buffer.layout->dense();
  lane::Batch batch(copier_, watch);
  std::vector<Slot> slots(window);
  std::size_t begun = 0, finished = 0, next = begin;
  while (next < end || finished < begun) {
    while (next < end && begun < finished + window) {
      Slot& slot = slots[begun++ % window];
      if (slot.block.data() == nullptr) slot.block = batch.lend(place, header.chunk_bytes);
      slot.begin = next;
      slot.end = next = std::min<std::size_t>(next + header.chunk_bytes, end);
      // Of a packed stream a side is where the range begins.
      const lane::Side side = header.strided != 0
                                  ? lane::Side::of(from, header.shape)
                                  : lane::Side::packed(lane::byte_at(from, static_cast<std::ptrdiff_t>(slot.begin)));
      batch.fetch(place, slot.block.data(), side, slot.begin, slot.end);
      slot.copied = batch.completion();
    }
    Slot& slot = slots[finished++ % window];
    co_await written(slot.copied, batch);
    if (dense) {
      std::memcpy(lane::byte_at(buffer.address, buffer.layout->true_lb()) + slot.begin, slot.block.data(),
                  slot.end - slot.begin);
    } else {
      buffer.layout->unpack(buffer.address, slot.block.data(), buffer.count, slot.begin, slot.end);
    }
  }
}

}  // namespace crosslane::message
