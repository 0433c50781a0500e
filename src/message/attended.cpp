// Payloads on their way to a thread that waits, in ways that need it: those that are held (held.cpp), or queued (queued.cpp), those that their
// senders are asked to write (put.cpp), and those whose ends it has to see. These a copy engine reads, one alone: the thread asks the driver,
// and tells the sender itself. A word that the stream writes behind a copy from another GPU comes later than the driver knows of the copy's end:
// between two H200 of 1 MiB 18.6 us after it was begun rather than 13.5, of 16 MiB 58.0 rather than 54.4, of 64 MiB 187 rather than 181. (Behind
// one to another GPU it does not.) See receiver.h.
//
// When that thread goes where it does not look, what is not over gets its word, and what nobody has begun to write is read: a payload on its way must
// not need this rank.
#include "message/reading.h"
#include "message/receiver.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>

namespace crosslane::message {

// A call of the driver for each, at each look.
constexpr std::ptrdiff_t most_attended = 2;
// No link brings more. The driver is left alone until all may be there: other threads may need it.
constexpr std::size_t bytes_a_microsecond = 900'000;

// One more may be. Where ranks share processors the sender had better not wait for this one's.
bool Receiver::attends() {
  if (attending_ == 0 || engine_.shares_processors()) return false;
  attended_.reserve(attended_.size() + 1);
  return std::ranges::count_if(attended_, [](const auto& reading) { return reading->unmarked.has_value(); }) <
         most_attended;
}

void Receiver::attend(const ReadingPointer& reading) noexcept {
  reading->unmarked->over = base::now() + std::chrono::microseconds{reading->received.bytes / bytes_a_microsecond};
  attended_.push_back(reading);  // there is room
}

void Receiver::look_for_ends() noexcept {
  if (!queued_.empty()) carry_queued();
  if (!held_.empty()) give_turns();
  if (attended_.empty()) return;
  for (const auto& reading : attended_)
    if (reading->unmarked && !reading->done.done() && base::now() >= reading->unmarked->over) end_if_over(*reading);
  std::erase_if(attended_, [](const auto& reading) { return reading->done.done(); });
}

// Whose memory it was may free it at once, and other memory come to its address: that cannot be mapped while this is.
void Receiver::end_if_over(Reading& reading) noexcept {
  try {
    if (!reading.batch->over()) return;
    reading.source = {};
    peers_->offers().end(reading.owner, reading.offer, share::Offers::State::done);
  } catch (...) {
    fail(reading, std::current_exception());
  }
}

void Receiver::mark(Reading& reading) noexcept {
  end_if_over(reading);
  if (reading.done.done()) return;
  try {
    static_cast<void>(end_behind(*reading.batch, reading.unmarked->place, reading.owner, reading.offer));
  } catch (...) {
    // The copy is under way all the same.
    if (reading.batch->drains())
      peers_->offers().end(reading.owner, reading.offer, share::Offers::State::done);
    else
      fail(reading, std::current_exception());
  }
}

void Receiver::leave_attended() noexcept {
  if (attended_.empty() && held_.empty() && queued_.empty()) return;
  if (!queued_.empty()) {
    Gathering short_ones(this);
    read_queued(short_ones);
  }
  // In streams that wait for nothing of the application's, as all of this need not.
  Gathering gathering(this, reading_);
  for (const auto& reading : held_)
    if (!reading->done.done()) read_after_all(reading, gathering);
  held_.clear();
  for (const auto& reading : attended_) {
    if (reading->done.done()) continue;
    if (reading->unmarked)
      mark(*reading);
    else if (reading->asked != nullptr)
      take_back(reading, gathering);
  }
  attended_.clear();
}

}  // namespace crosslane::message
