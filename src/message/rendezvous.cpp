// Both sides of a payload that the receiver reads from the sender's GPU memory (TYPES, section 4.1). See transfers.h.
#include "base/error.h"
#include "base/log.h"
#include "base/recycler.h"
#include "message/reading.h"
#include "message/sides.h"
#include "message/transfers.h"
#include "trace/tracer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <span>
#include <utility>

namespace crosslane::message {
namespace {

// What is read together: so much keeps the links busy for longer than another call of the driver takes, and those that wait for its words
// shall not wait long.
constexpr std::size_t most_gathered_bytes = std::size_t{8} << 20, most_gathered = 32;

// Of pinned memory that a payload for the host may take at a time.
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

// An offered payload that is not listed, as it lies from `source` on.
lane::Side side_of(const Header& header, const std::byte* source) noexcept {
  return header.strided != 0 ? lane::Side::of(source, header.shape) : lane::Side::packed(source);
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
    list_shown = peers_->show(list->data, 1, {});
    if (!list_shown) return std::nullopt;
  }
  auto header = open_shown(buffer);
  if (!header) return std::nullopt;
  const auto begin = buffer.layout->span(buffer.count).begin;
  if (shape) {
    header->strided = 1;
    header->shape = *shape;
    header->shape.offset -= begin;
  } else if (list) {
    header->listed = std::move(*list);
    header->listed.loops.offset -= begin;
    header->list = list_shown->exposed;
  }
  return header;
}

std::optional<Header> Transfers::offer_with_token(const Buffer& buffer, int to) {
  auto header = open_shown(buffer);
  if (!header) return std::nullopt;
  header->chunk_bytes = buffer.bytes;
  header->token = peers_->tokens().write(*header, to);
  return header;
}

// A header that offers what lies there, and says where its lowest byte is.
std::optional<Header> Transfers::open_shown(const Buffer& buffer) {
  const auto span = buffer.layout->span(buffer.count);
  const std::byte* const first = lane::byte_at(buffer.address, static_cast<std::ptrdiff_t>(span.begin));
  const auto shown = peers_->show(first, static_cast<std::size_t>(span.end - span.begin), buffer.seen);
  if (!shown || !has_helper()) return std::nullopt;
  auto header = open(buffer.bytes);
  if (!header) return std::nullopt;
  ++events_;
  auto ticket = peers_->offers().open();
  if (!ticket && peers_->writer().close_seen()) ticket = peers_->offers().open();
  if (!ticket) {
    tags_.give_back(header->tag);
    return std::nullopt;
  }
  header->offer = *ticket;
  header->exposed = shown->exposed;
  header->address = shown->address;
  return header;
}

base::Error Transfers::reader_failure(const engine::Watch& watch, int reader) const {
  if (!peers_->alive(reader))
    return {base::ErrorClass::other, "{}: rank {} of MPI_COMM_WORLD ended before it had read the message", watch.call,
            reader};
  return {base::ErrorClass::other,
          "{}: the GPU of rank {} of MPI_COMM_WORLD failed while it read the buffer; its own error says why",
          watch.call, reader};
}

Receiver::ReadingPointer Receiver::begin_reading(const Header& header, const Buffer& buffer, const engine::Watch& watch,
                                                 Gathering* gathering) {
  if (!header.offer) return nullptr;
  auto reading = std::allocate_shared<Reading>(base::RecyclingAllocator<Reading>{});
  auto& offers = peers_->offers();
  const int owner = reading->owner = peers_->owner(header);
  const bool taken = offers.take(owner, header.offer);
  if (!taken && !offers.stored(owner, header.offer)) return nullptr;
  ++answered_;
  reading->offer = header.offer;
  reading->to_gpu = buffer.on_gpu;
  reading->received.bytes = std::min<std::size_t>(header.bytes, buffer.bytes);
  reading->received.truncated = header.bytes > buffer.bytes;
  try {
    if (!taken) {
      reading->stored = reading->ferried = true;
      return reading;
    }
    const bool listed = header.listed.entries != 0;
    const bool reads = peers_->reads_for(buffer.on_gpu ? &buffer.place : nullptr);
    if (reads) reading->source = peers_->reach(header);
    if (reads && listed) reading->list = peers_->reach_list(header);
    const auto kernels_here = [&] {
      try {
        return copier_.mover().prepare(peers_->place().context);
      } catch (const base::Error& error) {
        base::log(base::Topic::info, "irregular messages come through the host: {}", error.what());
        return false;
      }
    };
    const bool follows = !listed || (reading->list.data != nullptr && kernels_here());
    if (reading->source.data == nullptr || !follows) {
      reading->ferried = true;
      return reading;
    }
    // One alone is read sooner than its sender has been asked.
    const bool alone = gathering == nullptr || !gathering->gathers();
    if (alone ? carry(*reading, header, buffer) : hold(reading, header, buffer, watch)) return reading;
    const bool suits = !alone && may_queue(*reading, header, buffer, *gathering);
    if (suits && queue(reading, header, buffer, watch)) return reading;
    if (gathering != nullptr && join(reading, header, buffer, watch, *gathering, suits)) return reading;
    if (alone && reading->received.bytes != 0 && attends() && is_plain(header, buffer))
      reading->unmarked.emplace(Reading::Unmarked{buffer.place});
    read_now(*reading, header, buffer, watch);
    if (reading->unmarked) attend(reading);
    // What took as long as a launch tells nothing.
    if (reading->timed && peers_->launch_courier(reading->timed->kind)) reading->timed.reset();
  } catch (...) {
    fail(*reading, std::current_exception());
  }
  return reading;
}

// False for what is to be enqueued by itself.
bool Receiver::join(const ReadingPointer& reading, const Header& header, const Buffer& buffer,
                    const engine::Watch& watch, Gathering& gathering, bool suits_courier) {
  if (header.listed.entries != 0 || !buffer.on_gpu || reading->received.bytes == 0) return false;
  reading->batch = gathering.batch_for(buffer.place, watch);
  if (reading->batch == nullptr || !gather(*reading->batch, *reading, header, buffer)) return false;
  count_read(*reading, header, buffer);
  gathering.add(reading, suits_courier);
  return true;
}

bool Receiver::is_plain(const Header& header, const Buffer& buffer) const {
  return buffer.on_gpu && header.strided == 0 && header.listed.entries == 0 &&
         buffer.layout->contiguous(buffer.count) && copier_.settled(buffer.place) &&
         peers_->memory_in(buffer.place) == lane::Memory::gpu;
}

void Receiver::read_now(Reading& reading, const Header& header, const Buffer& buffer, const engine::Watch& watch) {
  const trace::Span span(engine_.tracer(), trace::Kind::copy, "read a message", reading.received.bytes);
  reading.batch = std::make_shared<lane::Batch>(copier_, watch);
  try {
    enqueue(reading, header, buffer);
    count_read(reading, header, buffer);
  } catch (...) {
    static_cast<void>(reading.batch->drains());  // the sender is told then that nobody reads any more
    throw;
  }
}

bool Receiver::suits_courier(const Reading& reading, const Header& header, const Buffer& buffer,
                             std::size_t most) const {
  const std::size_t bytes = reading.received.bytes;
  return bytes != 0 && bytes <= most && is_plain(header, buffer) &&
         peers_->address_of(peers_->offers().theirs(reading.owner, header.offer)) != 0;
}

// A kernel that writes beyond what is there takes its context along; of a copy the driver says so.
std::optional<Courier::Errand> Receiver::errand_of(const Reading& reading, const Buffer& buffer) const {
  const std::size_t bytes = reading.received.bytes;
  std::byte* const to = buffer.first();
  const gpu::PointerInfo info = buffer.seen.on_gpu() ? buffer.seen : copier_.gpu().inspect(to);
  if (!info.on_gpu() || !info.holds(to, bytes)) return std::nullopt;
  auto& word = peers_->offers().theirs(reading.owner, reading.offer);
  return Courier::Errand{to,
                         reading.source.data,
                         bytes,
                         {&word, peers_->address_of(word), share::Offers::value(reading.offer, State::done)}};
}

// By the kernel that stays for such payloads, if it is there.
bool Receiver::carry(Reading& reading, const Header& header, const Buffer& buffer) {
  if (!suits_courier(reading, header, buffer, Courier::most_bytes)) return false;
  const std::size_t bytes = reading.received.bytes;
  const auto now = base::now();
  const Courier::Kind kind{bytes, false};
  reading.timed.emplace(Reading::Timed{now, kind, waits_});
  auto& courier = peers_->courier();
  courier.comes(now, true);
  if (courier.presence(kind, now) != Courier::Presence::free) return false;
  const trace::Span span(engine_.tracer(), trace::Kind::kernel, "read a message", bytes);
  const auto errand = errand_of(reading, buffer);
  if (!errand || courier.carry({&*errand, 1}) == 0) return false;
  reading.done = engine::Completion::of(*errand->word.word, errand->word.value);
  return true;
}

bool Receiver::reads_by_itself(const ReadingPointer& reading) noexcept {
  return reading != nullptr && !reading->ferried &&
         (reading->to_gpu || reading->received.bytes == 0 || reading->failure != nullptr);
}

bool Receiver::ferried(const ReadingPointer& reading) noexcept { return reading != nullptr && reading->ferried; }

std::string_view Receiver::route_of(const Header& header, const ReadingPointer& reading) noexcept {
  if (!ferried(reading)) return name_of(protocol_of(header));
  return reading->stored ? "stored" : "ferried";
}

engine::Completion Receiver::end_of(const Reading& reading) noexcept { return reading.done; }

void Receiver::fail(Reading& reading, std::exception_ptr failure) const {
  reading.failure = std::move(failure);
  if (!std::exchange(reading.told, true)) peers_->offers().fail(reading.owner, reading.offer);
}

void Receiver::look_for_failure(Reading& reading) const {
  try {
    if (reading.asked != nullptr)
      throw_if_gone(reading.asked->header, reading.asked->watch);
    else if (reading.batch != nullptr)
      reading.batch->throw_if_failed();
    else
      peers_->courier().throw_if_failed();
  } catch (...) {
    fail(reading, std::current_exception());
  }
}

Received Receiver::finish_reading(const Reading& reading) const {
  if (reading.failure) std::rethrow_exception(reading.failure);
  if (reading.asked != nullptr) peers_->came(reading.asked->header.sender, true);
  // Where the program did something else in between the time tells nothing.
  if (const auto& timed = reading.timed; timed && (!timed->kind.several || timed->wait == waits_))
    peers_->courier().took(timed->kind, reading.batch == nullptr, base::now() - timed->begun);
  return reading.received;
}

// Of what goes to GPU memory. Payloads for host memory are for read(), which owns the pinned memory in between.
void Receiver::enqueue(Reading& reading, const Header& header, const Buffer& buffer) {
  const std::size_t bytes = reading.received.bytes;
  const int owner = reading.owner;
  const std::byte* const source = reading.source.data;
  if (bytes == 0) return peers_->offers().end(owner, header.offer, State::done);
  if (!buffer.on_gpu) return;
  lane::Place place;
  if (header.listed.entries != 0) {
    lane::Listed list = header.listed;
    list.data = reading.list.data;
    const auto reader = reader_of(buffer);
    place = reader.place;
    reading.batch->follow(place, lane::Side::of(buffer.address, *buffer.layout, buffer.count), source, list, 0, bytes,
                          reader.memory);
  } else {
    const bool strided = header.strided != 0;
    const bool by_kernel = strided || !buffer.layout->contiguous(buffer.count);
    // Which writes the word, too.
    if (by_kernel && gather(*reading.batch, reading, header, buffer)) {
      reading.batch->enqueue_gathered(peers_->memory_in(buffer.place));
      return;
    }
    place = read_to_gpu(*reading.batch, buffer, side_of(header, source), strided ? nullptr : source, 0, bytes);
  }
  reading.done = reading.unmarked ? peers_->offers().reached(owner, header.offer, State::done)
                                  : end_behind(*reading.batch, place, owner, header.offer);
}

// False for what is to be enqueued by itself.
bool Receiver::gather(lane::Batch& batch, Reading& reading, const Header& header, const Buffer& buffer) {
  auto& word = peers_->offers().theirs(reading.owner, header.offer);
  const auto done =
      batch.gather(buffer.place, buffer.address, *buffer.layout, buffer.count, side_of(header, reading.source.data),
                   reading.received.bytes, peers_->memory_in(buffer.place),
                   {&word, peers_->address_of(word), share::Offers::value(header.offer, State::done)});
  if (done) reading.done = *done;
  return done.has_value();
}

std::shared_ptr<lane::Batch> Receiver::Turns::next_batch(lane::Copier& copier, const lane::Place& place,
                                                         const engine::Watch& watch) {
  auto& turn = batches[next++ % batches.size()];
  auto batch = turn.context == place.context ? turn.batch.lock() : nullptr;
  if (batch != nullptr)
    batch->begin_again();
  else
    batch = std::make_shared<lane::Batch>(copier, watch);
  turn.batch = batch;
  turn.context = place.context;
  return batch;
}

std::shared_ptr<lane::Batch> Receiver::Gathering::batch_for(const lane::Place& place, const engine::Watch& watch) {
  if (receiver_ == nullptr) return nullptr;
  const auto& copier = receiver_->copier_;
  if (batch_ != nullptr && place_.context != place.context) return nullptr;
  if (batch_ != nullptr && copier.settled(place_) == copier.settled(place)) return batch_;
  enqueue();
  auto& turns = turns_ != nullptr ? *turns_ : copier.settled(place) ? receiver_->gathering_ : receiver_->ordered_;
  // Not waited for: who gathers looks at receives, each of which another thread may hold.
  std::unique_lock lock(turns.mutex, std::try_to_lock);
  if (!lock) return nullptr;
  members_.reserve(most_gathered);  // what a batch has gathered must not be lost
  batch_ = turns.next_batch(receiver_->copier_, place, watch);
  place_ = place;
  lock_ = std::move(lock);
  return batch_;
}

void Receiver::Gathering::add(const ReadingPointer& reading, bool suits_courier) noexcept {
  members_.push_back(reading);
  bytes_ += reading->received.bytes;
  suit_courier_ = suit_courier_ && suits_courier;
  if (bytes_ >= most_gathered_bytes || members_.size() >= most_gathered) enqueue();
}

void Receiver::Gathering::enqueue() noexcept {
  if (members_.empty()) {
    batch_.reset();
    lock_ = {};
  }
  if (batch_ == nullptr) return;
  try {
    const auto begun = base::now();
    {
      const trace::Span span(receiver_->engine_.tracer(), trace::Kind::copy, "read messages", bytes_);
      batch_->enqueue_gathered(receiver_->peers_->memory_in(place_));
    }
    if (suit_courier_) receiver_->time(*members_.front(), bytes_, begun);
  } catch (...) {
    // Some may be on their way, and words that say so.
    static_cast<void>(batch_->drains());
    for (const ReadingPointer& member : members_) receiver_->fail(*member, std::current_exception());
  }
  members_.clear();
  batch_.reset();
  lock_ = {};
  bytes_ = 0;
  suit_courier_ = true;
}

// Into host memory.
engine::Task<> Receiver::read(Header& header, const Buffer& buffer, ReadingPointer reading, engine::Watch watch) {
  const std::size_t bytes = reading->received.bytes;
  try {
    header.listed.data = reading->list.data;
    if (bytes <= most_to_host) {
      co_await read_to_host(header, buffer, 0, bytes, reading->source.data, header.offer, watch);
    } else {
      // The sender need not wait until this rank comes by again.
      const engine::Completion read = helper_().spawn(read_long_to_host(header, buffer, reading, watch));
      co_await read;
      read.rethrow();
    }
  } catch (...) {
    fail(*reading, std::current_exception());
    throw;
  }
}

// Enqueues the reading of bytes [begin, end) of the payload, and tells where. `contiguous` is where the payload lies in one piece, byte
// `begin` first; else null.
lane::Place Receiver::read_to_gpu(lane::Batch& batch, const Buffer& buffer, const lane::Side& from,
                                  const std::byte* contiguous, std::size_t begin, std::size_t end) {
  if (contiguous != nullptr && buffer.layout->contiguous(buffer.count)) {
    batch.pull(buffer.place, buffer.address, contiguous, *buffer.layout, buffer.count, begin, end);
    return buffer.place;
  }
  const auto [place, memory] = reader_of(buffer);
  batch.across(place, lane::Side::of(buffer.address, *buffer.layout, buffer.count), from, begin, end, memory);
  return place;
}

Receiver::Reader Receiver::reader_of(const Buffer& buffer) const {
  const lane::Place home = peers_->place();
  const lane::Memory memory = peers_->memory_in(buffer.place);
  if (memory == lane::Memory::gpu) return {buffer.place, memory};
  return {{home.context, home.device, copier_.earlier(buffer.place)}, memory};
}

// Enqueues the end of the offer behind what reads it.
engine::Completion Receiver::end_behind(lane::Batch& batch, const lane::Place& place, int owner,
                                        const share::Offers::Ticket& offer) {
  auto& word = peers_->offers().theirs(owner, offer);
  return batch.mark(place, word, peers_->address_of(word), share::Offers::value(offer, State::done));
}

// Through pinned memory. What that has room for is enqueued before anything is waited for: the application may leave this task
// alone at any time. Of a packed stream `from` is where byte 0 of it would be.
engine::Task<> Receiver::read_to_host(const Header& header, const Buffer& buffer, std::size_t begin, std::size_t end,
                                      const std::byte* from, share::Offers::Ticket offer, const engine::Watch& watch) {
  struct Chunk {
    lane::HostBlock block;
    engine::Completion copied;
    std::size_t begin = 0, end = 0;
  };
  const lane::Place place = peers_->place();
  lane::Batch batch(copier_, watch);
  const auto chunk_at = [&](std::size_t byte) { return std::min<std::size_t>(header.chunk_bytes, end - byte); };
  const auto fetch = [&](std::size_t from_byte, std::size_t to_byte) {
    Chunk chunk;
    chunk.begin = from_byte;
    chunk.end = to_byte;
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
    return chunk;
  };
  std::deque<Chunk> chunks;
  std::size_t next = begin, pinned = 0;
  engine::Completion done;
  std::exception_ptr failure;  // of what was to be enqueued: what was enqueued before has to end
  do {
    try {
      while (!failure && next < end && (chunks.empty() || pinned + chunk_at(next) <= most_to_host)) {
        chunks.push_back(fetch(next, next + chunk_at(next)));
        next = chunks.back().end;
        pinned += chunks.back().end - chunks.back().begin;
        if (next == end) done = end_behind(batch, place, peers_->owner(header), offer);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    if (chunks.empty()) break;
    const Chunk& chunk = chunks.front();
    co_await written(chunk.copied, batch);
    if (!failure) unpack(buffer, chunk.block.data(), chunk.begin, chunk.end);
    pinned -= chunk.end - chunk.begin;
    chunks.pop_front();
  } while (next < end || !chunks.empty());
  if (failure) {
    co_await ended(batch, watch);
    std::rethrow_exception(failure);
  }
  co_await written(done, batch);
}

// On the helper thread. `reading` holds what is read. A failure is the sender's to know at once, too.
engine::Task<> Receiver::read_long_to_host(Header header, Buffer buffer, ReadingPointer reading, engine::Watch watch) {
  const std::size_t bytes = std::min<std::size_t>(header.bytes, buffer.bytes);
  try {
    co_await read_to_host(header, buffer, 0, bytes, reading->source.data, header.offer, watch);
  } catch (...) {
    fail(*reading, std::current_exception());
    throw;
  }
}

}  // namespace crosslane::message
