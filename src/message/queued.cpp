// Short contiguous payloads that a thread which waits for a few messages finds while a kernel stays that reads such (courier.h). The kernel is told
// of them together: at the thread's next look, or, while it is busy with those before, once it is free. To ring it takes less than a microsecond,
// where a launch takes the host four to six and begins three later; and the later it is, the more of them go with one ring. See receiver.h.
//
// Who waits here looks all the time; where it goes, or the kernel does, or takes too long, what is queued is read by a launch.
#include "base/log.h"
#include "message/reading.h"
#include "message/receiver.h"
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

bool Receiver::may_queue(const Reading& reading, const Header& header, const Buffer& buffer,
                         const Gathering& gathering) const {
  return attending_ != 0 && !engine_.shares_processors() && gathering.is_of_few() &&
         suits_courier(reading, header, buffer, Courier::most_bytes_of_few);
}

bool Receiver::queue(const ReadingPointer& pointer, const Header& header, const Buffer& buffer,
                     const engine::Watch& watch) {
  Reading& reading = *pointer;
  const auto now = base::now();
  auto& courier = peers_->courier();
  courier.comes(now, std::exchange(finds_first_, false));
  if (courier.presence({reading.received.bytes, true}, now) == Courier::Presence::away) return false;
  const auto errand = errand_of(reading, buffer);
  if (!errand) return false;
  try {
    auto asked = std::make_unique<Reading::Asked>(Reading::Asked{header, buffer, watch});
    queued_.push_back({pointer, *errand, now});
    reading.asked = std::move(asked);
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a message is not put off: {}", error.what());
    return false;
  }
  reading.done = engine::Completion::of(*errand->word.word, errand->word.value);
  return true;
}

void Receiver::carry_queued() noexcept {
  // Of those that failed meanwhile nothing must be written any more.
  std::erase_if(queued_, [](const Queued& queued) { return queued.reading->failure != nullptr; });
  if (queued_.empty()) return;
  const auto now = base::now();
  const auto presence = peers_->courier().presence({queued_.front().errand.bytes, true}, now);
  if (presence == Courier::Presence::busy && now - queued_.front().since < too_long) return;
  if (presence == Courier::Presence::free && tell_courier()) return;
  Gathering gathering(this, queued_.size());
  read_queued(gathering);
}

// False where it takes none.
bool Receiver::tell_courier() noexcept {
  std::array<Courier::Errand, Courier::few> errands;
  const std::size_t queued = std::min(queued_.size(), errands.size());
  for (std::size_t i = 0; i < queued; ++i) errands[i] = queued_[i].errand;
  const auto pass = [&](std::size_t count, auto each) {
    for (std::size_t i = 0; i < count; ++i) each(*queued_[i].reading);
    queued_.erase(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(count));
  };
  try {
    trace::Span span(engine_.tracer(), trace::Kind::kernel, "read messages");
    const std::size_t taken = peers_->courier().carry(std::span(errands).first(queued));
    if (taken == 0) return false;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < taken; ++i) bytes += errands[i].bytes;
    span.set_bytes(bytes);
    queued_.front().reading->timed.emplace(Reading::Timed{queued_.front().since, {bytes, true}, waits_});
    pass(taken, [](Reading& reading) { reading.asked.reset(); });
  } catch (...) {
    // Whether it has been told is not known.
    pass(queued, [&](Reading& reading) { fail(reading, std::current_exception()); });
  }
  return true;
}

void Receiver::read_queued(Gathering& gathering) noexcept {
  for (const Queued& queued : queued_)
    if (queued.reading->failure == nullptr) read_after_all(queued.reading, gathering);
  queued_.clear();
}

void Receiver::time(Reading& first, std::size_t bytes, base::Time begun) noexcept {
  if (attending_ == 0) return;
  const Courier::Kind kind{bytes, true};
  // What took as long as a launch tells nothing.
  if (!peers_->launch_courier(kind)) first.timed.emplace(Reading::Timed{begun, kind, waits_});
}

}  // namespace crosslane::message
