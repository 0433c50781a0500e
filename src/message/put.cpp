// Long contiguous payloads that kernels of their senders write to where they belong, when both sides wait (held.cpp says which). See transfers.h.
//
// The receiver, who has taken the offer, asks for it where the sender waits in a call that looks all the time whether it is asked, and tells
// where by what Exposure shows (share/offers.h has the states). It has opened the sender's memory, too: where the sender does not come, or its GPU
// has no room for the kernel, it takes that back, and reads. When the receiver goes itself it takes back what has not begun (attended.cpp), for the
// sender may go, too, and other kernels stay: what is read needs neither.
// What has begun needs nobody any more, but that the sender sees when its GPU fails, for which it looks after its sends.
#include "base/error.h"
#include "base/log.h"
#include "message/offering.h"
#include "message/reading.h"
#include "message/transfers.h"
#include "trace/tracer.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace crosslane::message {
namespace {

using State = share::Offers::State;
using Where = share::Offers::Where;
static_assert(sizeof(share::Exposed) <= sizeof(Where));

// Who looks comes within some microseconds, or what it enqueues meanwhile takes, unless it has to open the memory first, or another process has its
// processor; and as soon a kernel begins for which there is room.
constexpr base::Duration soon = std::chrono::microseconds{200}, later = std::chrono::milliseconds{1};

}  // namespace

// Where this rank's memory cannot be shown it is read.
void Receiver::ask(const ReadingPointer& pointer) noexcept {
  Reading& reading = *pointer;
  Reading::Asked& asked = *reading.asked;
  const std::size_t bytes = reading.received.bytes;
  // For one message it is not worth it.
  const auto shown = peers_->show(asked.buffer.first(), bytes, asked.buffer.seen, 2);
  if (!shown) return read_held(pointer);
  Where where{};
  std::memcpy(where.data(), &shown->exposed, sizeof shown->exposed);
  try {
    attended_.push_back(pointer);
    asked_.add(bytes, reading.done);
  } catch (...) {
    return fail(reading, std::current_exception());
  }
  asked.since = base::now();
  asked.wrote = peers_->wrote(asked.header.sender);
  peers_->offers().ask(reading.owner, reading.offer, where);
  world_.directory().ask(reading.owner);
}

void Receiver::urge(const ReadingPointer& pointer) {
  Reading& reading = *pointer;
  if (reading.asked == nullptr || !reading.asked->since || reading.done.done()) return;
  const auto& offers = peers_->offers();
  const int sender = reading.asked->header.sender;
  if (!offers.given_up(reading.owner, reading.offer)) {
    if (offers.has_begun(reading.owner, reading.offer)) return peers_->writes(sender);
    const auto now = base::now();
    if (now - *reading.asked->since < (engine_.shares_processors() ? later : soon)) return;
    if (reads_under_way().is_enough) return;  // the link is busy all the same
    // Who is asked for many at once has to do with the first ones, or with those of others.
    if (const auto wrote = peers_->wrote(sender); wrote != reading.asked->wrote || offers.is_writing(reading.owner)) {
      reading.asked->since = now;
      reading.asked->wrote = wrote;
      return;
    }
    if (!takes_back(reading)) return;
  }
  peers_->came(sender, false);
  Gathering none(nullptr);
  read_after_all(pointer, none);
}

// Nobody will urge it, nor its sender perhaps come by.
void Receiver::take_back(const ReadingPointer& reading, Gathering& gathering) noexcept {
  try {
    if (!takes_back(*reading)) return;
  } catch (...) {
    return fail(*reading, std::current_exception());
  }
  read_after_all(reading, gathering);
}

// False where it is being written, or there.
bool Receiver::takes_back(const Reading& reading) {
  std::optional<bool> taken = peers_->offers().take_back(reading.owner, reading.offer);
  unsigned looks = 0;
  constexpr unsigned a_question = 1024;  // a system call
  const auto is_known = [&] {
    if (!taken) taken = peers_->offers().take_back(reading.owner, reading.offer);
    return taken || (++looks % a_question == 0 && !peers_->alive(reading.asked->header));
  };
  if (!taken) engine_.until_apart(is_known, reading.asked->watch);
  return taken.value_or(false);
}

// What was asked for, and nobody writes.
void Receiver::read_after_all(const ReadingPointer& reading, Gathering& gathering) noexcept {
  const auto asked = std::move(reading->asked);
  if (asked->since) taken_back_.fetch_add(1, std::memory_order_relaxed);
  try {
    if (!join(reading, asked->header, asked->buffer, asked->watch, gathering,
              may_queue(*reading, asked->header, asked->buffer, gathering)))
      read_now(*reading, asked->header, asked->buffer, asked->watch);
  } catch (...) {
    fail(*reading, std::current_exception());
  }
}

void Receiver::throw_if_gone(const Header& header, const engine::Watch& watch) const {
  if (peers_->alive(header)) return;
  throw base::Error(base::ErrorClass::other, "{}: rank {} of MPI_COMM_WORLD ended before its message had come",
                    watch.call, header.sender);
}

// Held by who calls.
void Transfers::write_if_asked(Offering& offering) {
  auto& offers = peers_->offers();
  auto& writer = peers_->writer();
  const auto ticket = offering.payload_.offer;
  const Buffer& buffer = offering.payload_.buffer;
  const auto where = offers.asked(ticket);
  if (!where) return;
  share::Exposed exposed;
  std::memcpy(&exposed, where->data(), sizeof exposed);
  auto target = peers_->memory_in(buffer.place) == lane::Memory::gpu ? peers_->reach(offering.payload_.to, exposed)
                                                                     : PeerMemory::Reached{};
  auto& word = offers.word(ticket);
  const CUdeviceptr word_at = peers_->address_of(word);
  if (target.data == nullptr || word_at == 0 || !peers_->runs_kernels_at_once() || !writer.ready())
    return offers.refuse(ticket);
  bool writes = false;
  try {
    const trace::Span span(engine_.tracer(), trace::Kind::kernel, "write a message", buffer.bytes);
    // A kernel that reads what was freed meanwhile takes its context along; of a copy the driver says so.
    const std::byte* const from = buffer.first();
    if (!copier_.gpu().inspect(from).holds(from, buffer.bytes)) return offers.refuse(ticket);
    writes = offers.write(ticket);
    if (!writes) return;
    writer.write({target.data,
                  from,
                  buffer.bytes,
                  ticket,
                  {&word, word_at, share::Offers::value(ticket, State::done)},
                  peers_->address_of(offers.begun(ticket)),
                  peers_->address_of(offers.called_off(ticket))});
    offering.target_ = std::move(target);
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message is read, not written: {}", error.what());
    if (writes)
      offers.give_up(ticket);
    else
      offers.refuse(ticket);
  }
}

// The same. A GPU that has failed never tells of its end: the receiver, which reads then, says more.
void Transfers::give_up_if_failed(Offering& offering) {
  if (!offering.target_) return;
  try {
    peers_->writer().throw_if_failed();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message was not written: {}", error.what());
    peers_->offers().give_up(offering.payload_.offer);
  }
}

}  // namespace crosslane::message
