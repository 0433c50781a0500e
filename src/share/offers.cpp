// See offers.h.
#include "share/offers.h"

#include "kernel/push.h"

#include <algorithm>
#include <mutex>

namespace crosslane::share {

namespace {

using Kernel = kernel::Revocation;

// What called_off is until then: of that use alone, and nothing that an owner would tell there.
constexpr std::uint64_t may_be_called_off(std::uint64_t use) noexcept { return use ^ 0x63616c6c'6d616221; }

}  // namespace

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

void Offers::tell(int owner, const Ticket& ticket, std::span<const std::uint64_t> what) const noexcept {
  auto& beside = directory_.lines(owner)[ticket.line].beside;
  for (std::size_t i = 0; i < what.size(); ++i) beside[i].store(what[i], std::memory_order_relaxed);
}

// What an earlier use has left must not look like this one's.
void Offers::ask(int owner, const Ticket& ticket, const Where& where) const noexcept {
  tell(owner, ticket, where);
  begun(owner, ticket).store(0, std::memory_order_relaxed);
  called_off(owner, ticket).store(may_be_called_off(use(ticket)), std::memory_order_relaxed);
  end(owner, ticket, State::asked);
}

bool Offers::has_begun(int owner, const Ticket& ticket) const noexcept {
  return begun(owner, ticket).load(std::memory_order_relaxed) == Kernel::goes(use(ticket));
}

bool Offers::has_looked(const Ticket& ticket) const noexcept {
  const std::uint64_t found = begun(ticket).load(std::memory_order_acquire);
  return found == Kernel::goes(use(ticket)) || found == Kernel::stays_away(use(ticket));
}

bool Offers::is_writing(int owner) const noexcept {
  return std::ranges::any_of(directory_.lines(owner), [](const Line& line) {
    const std::uint64_t word = line.word.load(std::memory_order_relaxed);
    const std::uint64_t begun = line.beside[begun_at].load(std::memory_order_relaxed);
    return state_of(word) == State::writing && begun == Kernel::goes(use_of(word));
  });
}

// It may be over by now, and its line used again.
std::optional<bool> Offers::take_back(int owner, const Ticket& ticket) const noexcept {
  if (leave(owner, ticket, State::asked, State::reading)) return true;
  std::uint64_t expected = may_be_called_off(use(ticket));
  const std::uint64_t off = Kernel::off(use(ticket));
  const bool is_off =
      theirs(owner, ticket).load(std::memory_order_acquire) == value(ticket, State::writing) &&
      (called_off(owner, ticket).compare_exchange_strong(expected, off, std::memory_order_seq_cst) || expected == off);
  const std::uint64_t found = begun(owner, ticket).load(std::memory_order_seq_cst);
  if (is_off && found != Kernel::goes(use(ticket))) {
    // Its owner gives up what its GPU fails to tell.
    if (found == Kernel::begins(use(ticket)) && state(owner, ticket) == State::writing) return std::nullopt;
    static_cast<void>(leave(owner, ticket, State::writing, State::reading));
  }
  return given_up(owner, ticket);
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

std::optional<Offers::Where> Offers::asked(const Ticket& ticket) const noexcept {
  if (word(ticket).load(std::memory_order_acquire) != value(ticket, State::asked)) return std::nullopt;
  const Note note = told(owner(), ticket.line);
  Where where;
  std::copy_n(note.begin(), where.size(), where.begin());
  return where;
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
