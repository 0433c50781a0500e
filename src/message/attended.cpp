// The ends of payloads that a copy engine reads for a thread that waits and has nothing else to look at: it asks the driver for them, and tells the
// sender itself. A word that the stream writes behind a copy from another GPU comes later than the driver knows of the copy's end: between two
// H200 of 1 MiB 18.6 us after it was begun rather than 13.5, of 16 MiB 58.0 rather than 54.4, of 64 MiB 187 rather than 181. (Behind one to another
// GPU it does not.) See transfers.h.
//
// What is not over when that thread goes where it does not look gets its word then: a payload on its way must not need this rank.
#include "message/reading.h"
#include "message/transfers.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace crosslane::message {

// A call of the driver for each, at each look.
constexpr std::size_t most_attended = 2;
// No link brings more. The driver is left alone until all may be there: other threads may need it.
constexpr std::size_t bytes_a_microsecond = 900'000;

// One more may be. Where ranks share processors the sender had better not wait for this one's.
bool Transfers::attends() {
  if (attending_ == 0 || engine_.shares_processors()) return false;
  std::erase_if(attended_, [](const auto& reading) { return reading->done.done(); });
  attended_.reserve(most_attended);
  return attended_.size() < most_attended;
}

void Transfers::attend(const ReadingPointer& reading) noexcept {
  reading->unmarked->over = base::now() + std::chrono::microseconds{reading->received.bytes / bytes_a_microsecond};
  attended_.push_back(reading);  // there is room
}

void Transfers::look_for_ends() noexcept {
  for (const auto& reading : attended_)
    if (!reading->done.done() && base::now() >= reading->unmarked->over) end_if_over(*reading);
}

void Transfers::end_if_over(Reading& reading) noexcept {
  try {
    if (reading.batch->over()) peers_->offers().end(reading.owner, reading.offer, share::Offers::State::done);
  } catch (...) {
    fail(reading, std::current_exception());
  }
}

void Transfers::mark_attended() noexcept {
  for (const auto& reading : attended_) {
    if (!reading->done.done()) end_if_over(*reading);
    if (reading->done.done()) continue;
    try {
      static_cast<void>(end_behind(*reading->batch, reading->unmarked->place, reading->owner, reading->offer));
    } catch (...) {
      // The copy is under way all the same.
      if (reading->batch->ends())
        peers_->offers().end(reading->owner, reading->offer, share::Offers::State::done);
      else
        fail(*reading, std::current_exception());
    }
  }
  attended_.clear();
}

}  // namespace crosslane::message
