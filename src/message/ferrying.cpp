// See ferrying.h.
#include "message/ferrying.h"

#include "base/clock.h"
#include "message/sides.h"
#include "share/ferry.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace crosslane::message {
namespace {

using State = share::Offers::State;

// How often it looks whether a stored one is asked for: all the time at first, then as often as is fair to who does not come.
constexpr base::Duration soon = std::chrono::milliseconds{1}, shortest_nap = std::chrono::microseconds{50},
                         longest_nap = std::chrono::milliseconds{5};

}  // namespace

void Ferrying::serve(const CopyPointer& copy) { helper_().spawn(carry_when_asked(copy, carry(copy))); }

// On the helper thread.
engine::Task<> Ferrying::carry_when_asked(CopyPointer copy, engine::Task<> carrying) {
  auto& offers = peers_->offers();
  const share::Offers::Ticket offer = copy->offer;
  const auto answered = offers.reached(offer, State::declined);
  const auto over = engine::Completion::of(all_received_, 1);
  const base::Time stored = base::now();
  if (!answered.done()) co_await answered.or_after(soon);
  // A receiver may be away for minutes: it waits for an eighth of that more at most.
  while (!answered.done() && !over.done()) {
    const auto later = engine::Completion::after(std::clamp((base::now() - stored) / 8, shortest_nap, longest_nap));
    co_await later;
  }
  co_await std::move(carrying);
}

// The helper thread may be asleep when a copy is asked for. Ends then, or when nobody will ask any more.
engine::Task<> Ferrying::hasten(CopyPointer copy) {
  const auto& offers = peers_->offers();
  const share::Offers::Ticket offer = copy->offer;
  const auto answered = offers.reached(offer, State::declined);
  if (!answered.done()) co_await either(answered, engine::Completion::of(all_received_, 1));
  if (offers.declined(offer)) helper_().spawn(carry(copy));
}

// On the helper thread, if it was asked for.
engine::Task<> Ferrying::carry(CopyPointer copy) {
  auto& offers = peers_->offers();
  const auto number = offers.declined(copy->offer);
  if (!number || std::exchange(copy->carried, true)) co_return;
  // Whoever's payload comes before by that ferry.
  if (!offers.answer(copy->offer, copy->payload ? State::done : State::failed)) co_return;
  const share::Ferry ferry = peers_->ferry_of(copy->to);
  const auto turn = ferry.turn(*number);
  co_await turn;
  const std::size_t bytes = copy->payload ? copy->payload->size() : 0;
  for (std::size_t begin = 0; begin < bytes;) {
    const std::size_t length = std::min(bytes - begin, share::Ferry::most_chunk_bytes);
    const auto room = ferry.room();
    co_await room;
    ferry.fill(std::span(*copy->payload).subspan(begin, length));
    begin += length;
  }
  if (copy->payload) co_return;
  const auto room = ferry.room();
  co_await room;
  ferry.break_off();
}

}  // namespace crosslane::message
