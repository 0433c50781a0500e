// Short contiguous payloads that a thread which waits for a few messages finds while a kernel stays that reads such (courier.h). The kernel is told of
// them together: at the thread's next look, or, while it is busy with those before, once it is free. To ring it takes less than a microsecond, where
// a launch takes the host four to six and begins three later; and the later it is, the more of them go with one ring. See transfers.h.
//
// Who waits here looks all the time; where it goes, or the kernel does, or takes too long, what is queued is read by a launch.
#include "base/log.h"
#include "message/reading.h"
#include "message/transfers.h"
#include "trace/tracer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <utility>

namespace crosslane::message {
namespace {

// Several times what the kernel takes for all that it is told of at once.
constexpr std::chrono::microseconds too_long{100};

}  // namespace

bool Transfers::queue(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                      const engine::Watch& watch) {
  Reading& reading = *pointer;
  if (attending_ == 0 || engine_.shares_processors() ||
      !suits_courier(reading, header, buffer, Courier::most_bytes_of_few))
    return false;
  const auto now = base::now();
  auto& courier = peers_->courier();
  courier.comes(now, std::exchange(finds_first_, false));
  if (courier.presence(reading.received.bytes, now) == Courier::Presence::away) return false;
  const auto errand = errand_of(reading, buffer);
  if (!errand) return false;
  auto asked = std::make_unique<Reading::Asked>(Reading::Asked{header, buffer, watch});
  if (queued_.empty()) queued_since_ = now;
  queued_.push_back({pointer, *errand});
  reading.asked = std::move(asked);
  reading.done = engine::Completion::of(*errand->word.word, errand->word.value);
  return true;
}

void Transfers::carry_queued() noexcept {
  const auto now = base::now();
  const auto presence = peers_->courier().presence(queued_.front().errand.bytes, now);
  if (presence == Courier::Presence::busy && now - queued_since_ < too_long) return;
  if (presence == Courier::Presence::free && tell_courier(now)) return;
  Gathering gathering(this, queued_.size());
  read_queued(gathering);
}

// False where it takes none.
bool Transfers::tell_courier(base::Time now) noexcept {
  std::array<Courier::Errand, Courier::few> errands;
  const std::size_t queued = std::min(queued_.size(), errands.size());
  for (std::size_t i = 0; i < queued; ++i) errands[i] = queued_[i].errand;
  const auto bytes_of = [&](std::size_t count) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += errands[i].bytes;
    return bytes;
  };
  std::size_t taken = 0;
  try {
    const trace::Span span(engine_.tracer(), trace::Kind::kernel, "read messages", bytes_of(queued));
    taken = peers_->courier().carry(std::span(errands).first(queued));
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a kernel that stays for messages: {}", error.what());
  }
  if (taken == 0) return false;
  queued_.front().reading->timed.emplace(Reading::Timed{now, {bytes_of(taken), true}});
  for (std::size_t i = 0; i < taken; ++i) queued_[i].reading->asked.reset();
  queued_.erase(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(taken));
  queued_since_ = now;
  return true;
}

void Transfers::read_queued(Gathering& gathering) noexcept {
  for (const Queued& queued : std::exchange(queued_, {})) read_after_all(queued.reading, gathering);
}

void Transfers::time(Reading& first, std::size_t bytes, base::Time begun) noexcept {
  if (attending_ == 0) return;
  const Courier::Kind kind{bytes, true};
  // What took as long as a launch tells nothing.
  if (!peers_->launch_courier(kind)) first.timed.emplace(Reading::Timed{begun, kind});
}

}  // namespace crosslane::message
