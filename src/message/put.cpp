// Long contiguous payloads that their sender writes to where they belong, when both sides wait: a copy engine that writes to another GPU takes
// less time than one that reads from there. On two H200 1 MiB takes 10.0 us rather than 12.8, and 16 MiB of many 46 rather than 50. See transfers.h.
//
// The receiver, who has taken the offer, asks for it where the sender waits in a call that looks all the time whether it is asked, and tells
// where by what Exposure shows (share/offers.h has the states). It has opened the sender's memory, too: where the sender does not come, it reads.
// It asks where it finds several at once: one alone it reads as soon itself (attended.cpp). And not while as long ones go there: the copy engines of a GPU
// bring about as many bytes a second to and from other GPUs as a link takes one way, whichever way they go, so that both ranks would have to do alike all
// the time. Between two H100 one process that copies both ways reaches 364 GB/s in sum; of two, each that reads what comes to it 341 a way, and
// each that writes what goes from it 361; windows of 64 of 16 MiB both ways took 52 us a message where all were read, and 49 to 85 where some were
// written.
// It does not ask where it only looks in passing, for then it may be away for long, and so may the sender be by then: what is read needs nobody.
// So it takes back what it has asked for when it goes itself (attended.cpp).
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

// Who looks comes within a few microseconds, unless it has to open the memory first, or another process has its processor.
constexpr base::Duration soon = std::chrono::microseconds{30}, later = std::chrono::milliseconds{1};

}  // namespace

bool Transfers::ask(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                    const engine::Watch& watch) {
  Reading& reading = *pointer;
  const std::size_t bytes = reading.received.bytes;
  const bool suits = put_bytes_ != 0 && bytes >= put_bytes_ && !reading.received.truncated && header.token == 0 &&
                     is_plain(header, buffer);
  if (!suits || attending_ == 0 || !peers_->may_ask(header.sender) || sends_long_to(header.sender)) return false;
  // For one message it is not worth it.
  const auto shown = peers_->show(buffer.first(), bytes, buffer.seen, 2);
  if (!shown) return false;
  Note note{};
  std::memcpy(note.data(), &shown->exposed, sizeof shown->exposed);
  auto& offers = peers_->offers();
  reading.asked = std::make_unique<Reading::Asked>(
      Reading::Asked{header, buffer, watch, base::now(), peers_->wrote(header.sender)});
  reading.done = offers.reached(reading.owner, reading.offer, share::Offers::State::done);
  attended_.push_back(pointer);
  offers.ask(reading.owner, reading.offer, note);
  world_.directory().ask(reading.owner);
  reading.begun.reset();
  return true;
}

bool Transfers::sends_long_to(int peer) {
  const std::lock_guard lock(offerings_mutex_);
  return std::ranges::any_of(offerings_, [&](const Offering* offering) {
    return offering->to_ == peer && offering->header_.bytes >= put_bytes_ && !offering->over() &&
           peers_->offers().state(offering->header_.offer) < share::Offers::State::done;
  });
}

void Transfers::urge(const ReadingPointer& pointer) {
  Reading& reading = *pointer;
  if (reading.asked == nullptr || reading.done.done()) return;
  const auto& offers = peers_->offers();
  if (!offers.given_up(reading.owner, reading.offer)) {
    const auto state = offers.state(reading.owner, reading.offer);
    const int sender = reading.asked->header.sender;
    if (state == share::Offers::State::writing) peers_->writes(sender);
    if (state != share::Offers::State::asked) return;
    const auto now = base::now();
    if (now - reading.asked->since < (engine_.shares_processors() ? later : soon)) return;
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
  std::shared_ptr<lane::Batch> pushed;
  try {
    const trace::Span span(engine_.tracer(), trace::Kind::copy, "write a message", buffer.bytes);
    // Which others share.
    const auto batch = writing_.next_batch(copier_, buffer.place, {.call = offering.watch_.call});
    batch->push(buffer.place, target.data, buffer.address, *buffer.layout, buffer.count, 0, buffer.bytes);
    pushed = batch;
    auto& word = offers.word(ticket);
    static_cast<void>(batch->mark(buffer.place, word, peers_->address_of(word),
                                  share::Offers::value(ticket, share::Offers::State::done)));
    written_.fetch_add(1, std::memory_order_relaxed);
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message is read, not written: {}", error.what());
    // Nobody may have the memory before. Where that is not known give_up_if_failed() finds out.
    if (pushed == nullptr || pushed->drains()) return offers.give_up(ticket);
  }
  offering.writing_ = {std::move(target), std::move(pushed)};
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
