// The ends of payloads that a copy engine reads for a thread that waits and has nothing else to look at: it asks the driver for them, and tells the
// sender itself. A word that the stream writes behind a copy from another GPU comes later than the driver knows of the copy's end: between two
// H200 of 1 MiB 18.6 us after it was begun rather than 13.5, of 16 MiB 58.0 rather than 54.4, of 64 MiB 187 rather than 181. (Behind one to another
// GPU it does not.) See transfers.h.
//
// What is not over when that thread leaves gets its word then: a payload on its way must not need this rank.
#include "message/reading.h"
#include "message/transfers.h"

#include <algorithm>
#include <exception>

namespace crosslane::message {

// A call of the driver for each, at each look.
constexpr std::size_t most_attended = 2;

// One more may be.
bool Transfers::attends() noexcept {
  if (attending_ == 0) return false;
  std::erase_if(attended_, [](const auto& reading) { return reading->done.done(); });
  return attended_.size() < most_attended;
}

void Transfers::look_for_end(Reading& reading) noexcept {
  if (reading.done.done()) return;
  try {
    if (reading.batch->over()) peers_->offers().end(reading.owner, reading.offer, share::Offers::State::done);
  } catch (...) {
    fail(reading, std::current_exception());
  }
}

void Transfers::mark_attended() noexcept {
  for (const auto& reading : attended_) {
    if (reading->done.done()) continue;
    try {
      static_cast<void>(end_behind(*reading->batch, *reading->unmarked, reading->owner, reading->offer));
      reading->unmarked.reset();
    } catch (...) {
      fail(*reading, std::current_exception());
    }
  }
  attended_.clear();
}

}  // namespace crosslane::message
