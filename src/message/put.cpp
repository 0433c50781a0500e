// Long contiguous payloads that their sender writes to where they belong, when both sides wait: a copy engine that writes to another GPU takes
// less time than one that reads from there. On two H200 1 MiB takes 10.0 us rather than 12.8, and 16 MiB of many 46 rather than 50, both ways at once
// 47 rather than 51. See transfers.h.
//
// The receiver, who has taken the offer, asks for it where the sender waits in a call that looks all the time whether it is asked, and tells
// where by what Exposure shows (share/offers.h has the states). It has opened the sender's memory, too: where the sender does not come, it reads.
// It asks where it finds several at once: one alone it reads as soon itself (attended.cpp). Whether it asks or reads it decides when it is the payload's
// turn, for by then the sender may wait.
//
// Both ways at once it reads where the other rank reads, too, because that found nobody to ask, say: the copy engines of a GPU bring about as many bytes a
// second to and from other GPUs as a link takes one way, whichever way they go. Between two H100 one process that copies both ways reaches
// 364 GB/s in sum; of two, each that reads what comes to it 341 a way, and each that writes what goes from it 361 (copies of 16 MiB).
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
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace crosslane::message {
namespace {

using Note = share::Offers::Note;
static_assert(sizeof(share::Exposed) <= sizeof(Note));

// What comes here from one rank at a time. Of as much is decided, so that the links are busy until this rank looks again; and of less where the sender
// does not wait, which it may do by then.
constexpr std::size_t enough = std::size_t{32} << 20, enough_messages = 4;
constexpr std::size_t little = std::size_t{4} << 20, little_messages = 2;
// What the sender may read here beyond what this rank reads there.
constexpr std::size_t more_messages = 2;
// Who looks comes within a few microseconds, unless it has to open the memory first, or another process has its processor.
constexpr base::Duration soon = std::chrono::microseconds{30}, later = std::chrono::milliseconds{1};

}  // namespace

bool Transfers::hold(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                     const engine::Watch& watch) {
  Reading& reading = *pointer;
  const std::size_t bytes = reading.received.bytes;
  const bool suits = put_bytes_ != 0 && bytes >= put_bytes_ && !reading.received.truncated && header.token == 0 &&
                     is_plain(header, buffer);
  if (!suits || attending_ == 0 || !peers_->may_be_asked(header.sender)) return false;
  attended_.reserve(attended_.size() + 1);
  decided_.reserve(attended_.size() + 1);
  reading.asked = std::make_unique<Reading::Asked>(Reading::Asked{header, buffer, watch});
  reading.done = peers_->offers().reached(reading.owner, reading.offer, share::Offers::State::done);
  reading.begun.reset();
  attended_.push_back(pointer);
  peers_->offers().hold(reading.owner, reading.offer);
  return true;
}

void Transfers::decide(Gathering& gathering) noexcept {
  decided_.clear();
  for (const auto& reading : attended_) {
    if (reading->asked == nullptr || reading->asked->since || reading->done.done()) continue;
    const int sender = reading->asked->header.sender;
    if (std::ranges::find(decided_, sender) != decided_.end()) continue;
    const std::size_t bytes = reading->received.bytes;
    const UnderWay found = under_way(sender);
    const std::size_t comes = found.read + found.asked;
    const bool waits = peers_->waits(sender);
    if (comes >= (waits ? std::max(enough, enough_messages * bytes) : std::max(little, little_messages * bytes)))
      decided_.push_back(sender);
    else if (!waits || found.is_read > found.read + more_messages * bytes || !ask(*reading))
      read_after_all(reading, gathering);
  }
}

// False where this rank's memory cannot be shown.
bool Transfers::ask(Reading& reading) noexcept {
  auto& asked = *reading.asked;
  // For one message it is not worth it.
  const auto shown = peers_->show(asked.buffer.first(), reading.received.bytes, asked.buffer.seen, 2);
  if (!shown) return false;
  Note note{};
  std::memcpy(note.data(), &shown->exposed, sizeof shown->exposed);
  asked.since = base::now();
  asked.wrote = peers_->wrote(asked.header.sender);
  peers_->offers().ask(reading.owner, reading.offer, note);
  world_.directory().ask(reading.owner);
  return true;
}

// Of one that nobody writes.
void Transfers::read_after_all(const ReadingPointer& reading, Gathering& gathering) noexcept {
  const auto asked = std::move(reading->asked);
  if (!asked->since) peers_->offers().read(reading->owner, reading->offer);
  try {
    if (!join(reading, asked->header, asked->buffer, asked->watch, gathering))
      read_now(*reading, asked->header, asked->buffer, asked->watch);
  } catch (...) {
    fail(*reading, std::current_exception());
  }
}

Transfers::UnderWay Transfers::under_way(int peer) {
  UnderWay found;
  for (const auto& reading : attended_)
    if (reading->asked != nullptr && reading->asked->since && reading->asked->header.sender == peer &&
        !reading->done.done())
      found.asked += reading->received.bytes;
  {
    const std::lock_guard lock(reads_mutex_);
    for (const auto& read : reads_)
      if (read.sender == peer && !read.done.done()) found.read += read.bytes;
  }
  const std::lock_guard lock(offerings_mutex_);
  for (const Offering* const offering : offerings_) {
    const auto& header = offering->header_;
    if (offering->to_ != peer || header.bytes < put_bytes_ || offering->over()) continue;
    const auto state = peers_->offers().state(header.offer);
    if (state == share::Offers::State::taken || state == share::Offers::State::reading) found.is_read += header.bytes;
  }
  return found;
}

void Transfers::count_read(const Reading& reading, const Header& header) {
  if (!reading.to_gpu || put_bytes_ == 0 || reading.received.bytes < put_bytes_) return;
  const std::lock_guard lock(reads_mutex_);
  std::erase_if(reads_, [](const Read& read) { return read.done.done(); });
  reads_.push_back({header.sender, reading.received.bytes, reading.done});
}

void Transfers::urge(Reading& reading) {
  if (reading.asked == nullptr || !reading.asked->since || reading.done.done()) return;
  const auto& offers = peers_->offers();
  if (!offers.given_up(reading.owner, reading.offer)) {
    const auto state = offers.state(reading.owner, reading.offer);
    const int sender = reading.asked->header.sender;
    if (state == share::Offers::State::writing) peers_->writes(sender);
    if (state != share::Offers::State::asked) return;
    const auto now = base::now();
    if (now - *reading.asked->since < (engine_.shares_processors() ? later : soon)) return;
    // Who is asked for many at once has to do with the first ones.
    if (const auto wrote = peers_->wrote(sender); wrote != reading.asked->wrote) {
      reading.asked->since = now;
      reading.asked->wrote = wrote;
      return;
    }
    if (!offers.take_back(reading.owner, reading.offer)) return;
  }
  const auto asked = std::move(reading.asked);
  peers_->came(asked->header.sender, false);
  try {
    read_now(reading, asked->header, asked->buffer, asked->watch);
  } catch (...) {
    fail(reading, std::current_exception());
  }
}

// Nobody will urge it, nor its sender perhaps come by.
void Transfers::take_back(const ReadingPointer& reading, Gathering& gathering) noexcept {
  const auto& offers = peers_->offers();
  if (reading->asked->since && !offers.take_back(reading->owner, reading->offer) &&
      !offers.given_up(reading->owner, reading->offer))
    return;
  read_after_all(reading, gathering);
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
  // Not waited for: this thread may be gathering what it reads. Who looks looks again.
  const std::unique_lock lock(long_ones_.mutex, std::try_to_lock);
  if (!lock || !offers.write(ticket)) return;
  std::shared_ptr<lane::Batch> pushed;
  try {
    const trace::Span span(engine_.tracer(), trace::Kind::copy, "write a message", buffer.bytes);
    // Which others share.
    const auto batch = long_ones_.next_batch(copier_, buffer.place, {.call = offering.watch_.call});
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
