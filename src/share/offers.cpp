// See offers.h.
#include "share/offers.h"

namespace crosslane::share {

std::optional<Offers::Ticket> Offers::open() {
  const auto ticket = reserve();
  if (ticket) own()[ticket->line].word.store(value(*ticket, State::offered), std::memory_order_release);
  return ticket;
}

std::optional<Offers::Ticket> Offers::reserve() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const std::size_t line = free_.back();
  free_.pop_back();
  return Ticket{++rounds_[line], line};
}

void Offers::tell(const Ticket& ticket, const Note& note) const noexcept { tell(owner(), ticket, note); }

void Offers::tell(int owner, const Ticket& ticket, const Note& note) const noexcept {
  auto& beside = directory_.lines(owner)[ticket.line].beside;
  for (std::size_t i = 0; i < note.size(); ++i) beside[i].store(note[i], std::memory_order_relaxed);
}

Offers::Note Offers::told(int owner, std::size_t line) const noexcept {
  const auto& beside = directory_.lines(owner)[line].beside;
  Note note;
  for (std::size_t i = 0; i < note.size(); ++i) note[i] = beside[i].load(std::memory_order_relaxed);
  return note;
}

bool Offers::leave(const Ticket& ticket, State from, State to) noexcept { return leave(owner(), ticket, from, to); }

bool Offers::leave(int owner, const Ticket& ticket, State from, State to) const noexcept {
  std::uint64_t expected = value(ticket, from);
  return theirs(owner, ticket)
      .compare_exchange_strong(expected, value(ticket, to), std::memory_order_acq_rel, std::memory_order_acquire);
}

std::optional<Offers::Note> Offers::asked(const Ticket& ticket) const noexcept {
  if (word(ticket).load(std::memory_order_acquire) != value(ticket, State::asked)) return std::nullopt;
  return told(owner(), ticket.line);
}

void Offers::close(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  rounds_[ticket.line] = ticket.round;
  free_.push_back(ticket.line);
}

void Offers::fail(int owner, const Ticket& ticket) const noexcept {
  auto& word = theirs(owner, ticket);
  std::uint64_t seen = word.load(std::memory_order_acquire);
  while (seen < value(ticket, State::done) &&
         !word.compare_exchange_weak(seen, value(ticket, State::failed), std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {}
}

void Offers::decline(int owner, const Ticket& ticket, std::uint64_t number) const noexcept {
  directory_.lines(owner)[ticket.line].beside.back().store(number, std::memory_order_relaxed);
  end(owner, ticket, State::declined);
}

std::span<std::byte> Offers::memory() const noexcept {
  const auto first = directory_.lines(0);
  const auto last = directory_.lines(directory_.ranks() - 1);
  return std::as_writable_bytes(std::span<Line>(first.data(), last.data() + last.size()));
}

}  // namespace crosslane::share
