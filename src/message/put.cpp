// Long contiguous payloads of which several come at a time: their receiver's copy engine reads some, and kernels of their senders write others to where
// they belong, where both sides wait. A link so brings more than by either: between two H200 of 16 MiB 377 GB/s one way, and 369 both ways at once, where
// copy engines that read reach 334 and 326, and copy engines that write 364 and 356; of 4 MiB 335 and 327 rather than 243 and 237, and 315 and 297.
// Copy engines that write do not add to those that read: those of a GPU bring about as many bytes a second to and from other GPUs as a link takes one
// way, whichever way they go. See transfers.h.
//
// The receiver, who has taken the offers, holds such payloads in the order in which they come, and gives each its turn once there is room: it reads as
// many as keep a copy engine busy, and asks for as many, where their senders wait in calls that look all the time whether they are asked. It tells
// where by what Exposure shows (share/offers.h has the states). It has opened the sender's memory, too: where the sender does not come, it reads. One
// payload alone it reads at once (attended.cpp).
// It neither holds nor asks where it only looks in passing, for then it may be away for long, and so may the sender be by then: what is read needs nobody.
// So it takes back what it has asked for when it goes itself, and reads what it holds (attended.cpp).
// From `writing` on the receiver counts on the sender to see that its GPU fails, which it does where it looks after its sends.
#include "base/error.h"
#include "base/log.h"
#include "message/offering.h"
#include "message/reading.h"
#include "message/transfers.h"
#include "trace/tracer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace crosslane::message {
namespace {

using Note = share::Offers::Note;
static_assert(sizeof(share::Exposed) <= sizeof(Note));

// At a time, of what is read and of what is written: so much keeps both busy until this rank looks again. And as many as there are streams for each, twice:
// they share what they have, end at once, and had nothing to do then.
constexpr std::size_t enough_bytes = std::size_t{12} << 20, enough_messages = 4;
// Who looks comes within some microseconds, or what it enqueues meanwhile takes, unless it has to open the memory first, or another process has its
// processor.
constexpr base::Duration soon = std::chrono::microseconds{200}, later = std::chrono::milliseconds{1};

}  // namespace

void Transfers::UnderWay::add(std::size_t bytes, const engine::Completion& done) {
  forget_what_is_over();
  each_.emplace_back(bytes, done);
  bytes_ += bytes;
}

bool Transfers::UnderWay::is_enough() const noexcept { return bytes_ >= enough_bytes && each_.size() >= enough_messages; }

void Transfers::UnderWay::forget_what_is_over() noexcept {
  std::erase_if(each_, [this](const auto& each) {
    if (!each.second.done()) return false;
    bytes_ -= each.first;
    return true;
  });
}

bool Transfers::hold(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                     const engine::Watch& watch) {
  Reading& reading = *pointer;
  const bool suits = put_bytes_ != 0 && reading.received.bytes >= put_bytes_ && !reading.received.truncated &&
                     header.token == 0 && is_plain(header, buffer);
  if (!suits || attending_ == 0 || !peers_->may_be_asked(header.sender)) return false;
  reading.asked = std::make_unique<Reading::Asked>(Reading::Asked{header, buffer, watch});
  reading.done = peers_->offers().reached(reading.owner, reading.offer, share::Offers::State::done);
  reading.begun.reset();
  held_.push_back(pointer);
  give_turns();
  // Who finds many such is not back at its own sends for long.
  look_if_asked();
  return true;
}

void Transfers::give_turns() noexcept {
  asked_.forget_what_is_over();
  auto reads = reads_under_way();
  int away = -1;  // a sender that does not wait
  for (auto next = held_.begin(); next != held_.end() && !(reads.is_enough && asked_.is_enough());) {
    const ReadingPointer& reading = *next;
    const int sender = reading->asked->header.sender;
    const bool is_over = reading->done.done();
    const bool may_ask = sender != away && !asked_.is_enough() && (reads.is_enough || asked_.bytes() < reads.bytes);
    if (!is_over && may_ask && peers_->waits(sender)) {
      ask(reading);
    } else if (!is_over && !reads.is_enough) {
      read_held(reading);
    } else if (!is_over) {
      away = sender;
      ++next;
      continue;
    }
    next = held_.erase(next);
    reads = reads_under_way();
  }
}

Transfers::Reads Transfers::reads_under_way() {
  const std::lock_guard lock(reads_mutex_);
  reads_.forget_what_is_over();
  return {reads_.bytes(), reads_.is_enough()};
}

// With a word of its own: those that are read together end together, and then no link would be busy.
void Transfers::read_held(const ReadingPointer& reading) noexcept {
  Gathering alone(this, reading_);
  read_after_all(reading, alone);
}

// Where this rank's memory cannot be shown it is read.
void Transfers::ask(const ReadingPointer& pointer) noexcept {
  Reading& reading = *pointer;
  Reading::Asked& asked = *reading.asked;
  const std::size_t bytes = reading.received.bytes;
  // For one message it is not worth it.
  const auto shown = peers_->show(asked.buffer.first(), bytes, asked.buffer.seen, 2);
  if (!shown) return read_held(pointer);
  Note note{};
  std::memcpy(note.data(), &shown->exposed, sizeof shown->exposed);
  try {
    attended_.push_back(pointer);
    asked_.add(bytes, reading.done);
  } catch (...) {
    return fail(reading, std::current_exception());
  }
  asked.since = base::now();
  asked.wrote = peers_->wrote(asked.header.sender);
  peers_->offers().ask(reading.owner, reading.offer, note);
  world_.directory().ask(reading.owner);
}

void Transfers::count_read(const Reading& reading) {
  if (!reading.to_gpu || put_bytes_ == 0 || reading.received.bytes < put_bytes_) return;
  const std::lock_guard lock(reads_mutex_);
  reads_.add(reading.received.bytes, reading.done);
}

void Transfers::urge(const ReadingPointer& pointer) {
  Reading& reading = *pointer;
  if (reading.asked == nullptr || !reading.asked->since || reading.done.done()) return;
  const auto& offers = peers_->offers();
  if (!offers.given_up(reading.owner, reading.offer)) {
    const auto state = offers.state(reading.owner, reading.offer);
    const int sender = reading.asked->header.sender;
    if (state == share::Offers::State::writing) peers_->writes(sender);
    if (state != share::Offers::State::asked) return;
    const auto now = base::now();
    if (now - *reading.asked->since < (engine_.shares_processors() ? later : soon)) return;
    if (reads_under_way().is_enough) return;  // the link is busy all the same
    // Who is asked for many at once has to do with the first ones.
    if (const auto wrote = peers_->wrote(sender); wrote != reading.asked->wrote) {
      reading.asked->since = now;
      reading.asked->wrote = wrote;
      return;
    }
    if (!offers.take_back(reading.owner, reading.offer)) return;
  }
  peers_->came(reading.asked->header.sender, false);
  Gathering none(nullptr);
  read_after_all(pointer, none);
}

// Nobody will urge it, nor its sender perhaps come by.
void Transfers::take_back(const ReadingPointer& reading, Gathering& gathering) noexcept {
  const auto& offers = peers_->offers();
  if (offers.take_back(reading->owner, reading->offer) || offers.given_up(reading->owner, reading->offer))
    read_after_all(reading, gathering);
}

// What was asked for, and nobody writes.
void Transfers::read_after_all(const ReadingPointer& reading, Gathering& gathering) noexcept {
  const auto asked = std::move(reading->asked);
  try {
    if (!join(reading, asked->header, asked->buffer, asked->watch, gathering))
      read_now(*reading, asked->header, asked->buffer, asked->watch);
  } catch (...) {
    fail(*reading, std::current_exception());
  }
}

// It may have died while it wrote.
void Transfers::throw_if_gone(const Reading& reading) const {
  const Header& header = reading.asked->header;
  if (peers_->alive(header)) return;
  throw base::Error(base::ErrorClass::other, "{}: rank {} of MPI_COMM_WORLD ended while it wrote the message",
                    reading.asked->watch.call, header.sender);
}

// Held by who calls.
void Transfers::write_if_asked(Offering& offering) {
  auto& offers = peers_->offers();
  const auto ticket = offering.header_.offer;
  const Buffer& buffer = offering.buffer_;
  const auto note = offers.asked(ticket);
  if (!note) return;
  share::Exposed exposed;
  std::memcpy(&exposed, note->data(), sizeof exposed);
  auto target =
      memory_in(buffer.place) == lane::Memory::gpu ? peers_->reach(offering.to_, exposed) : PeerMemory::Reached{};
  if (target.data == nullptr) return offers.refuse(ticket);
  if (!offers.write(ticket)) return;
  const std::lock_guard lock(writing_.mutex);
  try {
    const trace::Span span(engine_.tracer(), trace::Kind::kernel, "write a message", buffer.bytes);
    // Which others share.
    auto batch = writing_.next_batch(copier_, buffer.place, {.call = offering.watch_.call});
    auto& word = offers.word(ticket);
    if (!batch->push(buffer.place, target.data, buffer.address, *buffer.layout, buffer.count, buffer.bytes,
                     {&word, peers_->address_of(word), share::Offers::value(ticket, share::Offers::State::done)}))
      return offers.give_up(ticket);
    written_.fetch_add(1, std::memory_order_relaxed);
    offering.writing_ = {std::move(target), std::move(batch)};
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message is read, not written: {}", error.what());
    offers.give_up(ticket);
  }
}

// The same. A GPU that has failed never tells of its end: the receiver, which reads then, says more.
void Transfers::give_up_if_failed(Offering& offering) {
  if (offering.writing_.batch == nullptr) return;
  try {
    offering.writing_.batch->throw_if_failed();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message was not written: {}", error.what());
    offering.writing_ = {};
    peers_->offers().give_up(offering.header_.offer);
  }
}

}  // namespace crosslane::message
