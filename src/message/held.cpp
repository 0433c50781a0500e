// Long contiguous payloads of which a thread that waits finds several at a time: each is held until it is its turn. The receiver's copy engine
// reads some, and kernels of their senders write others (put.cpp): so a link brings more than by either. Between two H200 of 16 MiB 378 GB/s one
// way, where copy engines that read reach 334, those that write 364, and kernels 334; of 4 MiB 335, rather than 243 or 315. Both ways at once
// that is little: windows of 64 reach 326 to 336 GB/s, 323 to 332 where all is read, 314 where kernels write all: what is read is asked for over
// the link that goes the other way. Copy engines that write all both ways reach 356 once they do; but those of a GPU bring about as many bytes a
// second to and from other GPUs as a link takes one way, whichever way they go, so that changing over from what was read while the window began
// costs what they gain (tried: windows of 64 in 3220 to 3310 us rather than 3240 to 3290, of 8 in 490 rather than 410). See receiver.h.
//
// They are held in the order in which they come, and get their turns where there is room: as many are read, and as many written, as keep both
// busy until this rank looks again. One payload alone is read at once (attended.cpp). Nothing is held where this rank only looks in passing, for
// then it may be away for long; and when the thread goes where it does not look, what it holds is read (attended.cpp).
#include "base/log.h"
#include "message/reading.h"
#include "message/receiver.h"

#include <exception>
#include <memory>
#include <mutex>

namespace crosslane::message {

bool Receiver::hold(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                    const engine::Watch& watch) {
  Reading& reading = *pointer;
  const bool suits = put_bytes_ != 0 && reading.received.bytes >= put_bytes_ && !reading.received.truncated &&
                     is_plain(header, buffer);
  if (!suits || attending_ == 0 || !peers_->may_be_asked(header.sender)) return false;
  reading.asked = std::make_unique<Reading::Asked>(Reading::Asked{header, buffer, watch});
  reading.done = peers_->offers().reached(reading.owner, reading.offer, share::Offers::State::done);
  held_.push_back(pointer);
  give_turns();
  if (!held_.empty() && held_.back() == pointer) held_so_far_.fetch_add(1, std::memory_order_relaxed);
  // Who finds many such is not back at its own sends for long. What fails there is met by the next look, too.
  try {
    look_at_sends_();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "sends are looked at later: {}", error.what());
  }
  return true;
}

void Receiver::give_turns() noexcept {
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

Receiver::Reads Receiver::reads_under_way() {
  const std::lock_guard lock(reads_mutex_);
  reads_.forget_what_is_over();
  return {reads_.bytes(), reads_.is_enough()};
}

// With a word of its own: those that are read together end together, and then no link would be busy.
void Receiver::read_held(const ReadingPointer& reading) noexcept {
  Gathering alone(this, reading_);
  read_after_all(reading, alone);
}

// But for those that wait for the application's streams (is_plain() tells): these may begin only when what is held has come, which would then be
// held for ever.
void Receiver::count_read(const Reading& reading, const Header& header, const Buffer& buffer) noexcept {
  try {
    if (put_bytes_ == 0 || reading.received.bytes < put_bytes_ || !is_plain(header, buffer)) return;
    const std::lock_guard lock(reads_mutex_);
    reads_.add(reading.received.bytes, reading.done);
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "what is read is not counted: {}", error.what());
  }
}

}  // namespace crosslane::message
