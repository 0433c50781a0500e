// ShortReceives: whether a rank looks at receives with room for a token, but no header (token.h). It must not know what it sees there.
//
//   undecided   it does not need to, as nobody sends it tokens yet, and none such was left to MPI   -> looked_at, before it says that it takes tokens
//                                                                                                   -> left, with the first that is left to MPI
//   looked_at   it looks at all of them                                                             for ever
//   left        one may wait in MPI that was not looked at: nobody may ever send it a token         for ever
#pragma once

#include "message/header.h"
#include "message/token.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace crosslane::message {

/// One rank's. Thread-safe, but for look_at(), for which one thread at a time may call MPI.
class ShortReceives {
 public:
  /// A message of fewer bytes stands for no other.
  [[nodiscard]] std::size_t least_looked_at() const noexcept { return are_looked_at() ? token_bytes : header_bytes; }
  [[nodiscard]] bool are_looked_at() const noexcept { return state() == State::looked_at; }
  /// From now on, unless one was left. Returns whether they are.
  bool look_at() noexcept {
    if (state() == State::undecided) state_.store(State::looked_at, std::memory_order_relaxed);
    return are_looked_at();
  }
  /// A receive with so much room that is not looked at is posted.
  void leave(std::size_t room) noexcept {
    if (room >= token_bytes && state() == State::undecided) state_.store(State::left, std::memory_order_relaxed);
  }

 private:
  enum class State : std::uint8_t { undecided, looked_at, left };
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_relaxed); }
  std::atomic<State> state_{State::undecided};
};

}  // namespace crosslane::message
