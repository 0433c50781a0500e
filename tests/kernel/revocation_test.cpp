// The protocol between a kernel that may be called off and who calls it off (the table in kernel/push.h), by exhaustive interleaving: every order
// in which the two come, go on, and see each other's writes. Exactly one of them moves the payload, and nobody waits for ever; and protocols with a
// piece missing must be caught.
#include "support/interleaving.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::test::revocation {
namespace {

// What a protocol may lack.
struct Protocol {
  bool kernel_fences = true, caller_fences = true;
  bool awaits_verdict = true;  // else: who sees that it begins takes it for running
  bool says_that_it_stays_away = true;
};

enum class Kernel : std::uint8_t { waits_for_room, begins, looks, tells, copies, over };
enum class Caller : std::uint8_t { waits, calls_off, looks, reads, leaves, over };
enum Begun : std::uint8_t { before, begins, goes, stays_away };

// All that there is, small enough to be a key. What a side has written comes to memory later, in that order, but where it fences; it sees its own.
struct State {
  Kernel kernel = Kernel::waits_for_room;
  Caller caller = Caller::waits;
  std::uint8_t begun = before, called_off = 0;                                      // in memory
  std::uint8_t unseen_begun = before, unseen_then = before, unseen_called_off = 0;  // on their way there
  std::uint8_t off = 0;                                                             // as the kernel has found
  std::uint8_t copied = 0, read = 0;

  [[nodiscard]] std::string key() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};

class Model : public Searched<Model, State> {
 public:
  explicit Model(const Protocol& protocol) : protocol_(protocol) {}

 private:
  friend Searched<Model, State>;
  void follow(const State& now, std::vector<State>& next) const {
    memory(now, next);
    kernel(now, next);
    caller(now, next);
  }
  static std::optional<std::string> judge(const State& now, bool nothing_follows) {
    if (now.copied != 0 && now.read != 0) return "both move it";
    if (!nothing_follows) return std::nullopt;
    if (now.caller != Caller::over) return "who calls off waits for ever";
    return now.copied + now.read == 1 ? std::nullopt : std::optional<std::string>("nobody moves it");
  }

  // Writes arrive.
  static void memory(const State& now, std::vector<State>& next) {
    if (now.unseen_begun != before) {
      State s = now;
      s.begun = s.unseen_begun;
      s.unseen_begun = s.unseen_then;
      s.unseen_then = before;
      next.push_back(s);
    }
    if (now.unseen_called_off != 0) {
      State s = now;
      s.called_off = 1;
      s.unseen_called_off = 0;
      next.push_back(s);
    }
  }
  static void write(State& s, Begun what) { (s.unseen_begun == before ? s.unseen_begun : s.unseen_then) = what; }

  void kernel(const State& now, std::vector<State>& next) const {
    State s = now;
    switch (now.kernel) {
      case Kernel::waits_for_room:
        s.kernel = Kernel::begins;
        break;
      case Kernel::begins:
        write(s, begins);
        s.kernel = Kernel::looks;
        break;
      case Kernel::looks:
        if (protocol_.kernel_fences && now.unseen_begun != before) return;
        s.off = now.called_off;
        s.kernel = Kernel::tells;
        break;
      case Kernel::tells:
        if (s.off == 0)
          write(s, goes);
        else if (protocol_.says_that_it_stays_away)
          write(s, stays_away);
        s.kernel = s.off == 0 ? Kernel::copies : Kernel::over;
        break;
      case Kernel::copies:
        s.copied = 1;
        s.kernel = Kernel::over;
        break;
      case Kernel::over:
        return;
    }
    next.push_back(s);
  }

  void caller(const State& now, std::vector<State>& next) const {
    State s = now;
    switch (now.caller) {
      case Caller::waits: {
        State contented = s;  // as long as the kernel needs
        contented.caller = Caller::leaves;
        next.push_back(contented);
        s.caller = Caller::calls_off;
        break;
      }
      case Caller::calls_off:
        s.unseen_called_off = 1;
        s.caller = Caller::looks;
        break;
      case Caller::looks:
        if (protocol_.caller_fences && now.unseen_called_off != 0) return;
        if (now.begun == begins && protocol_.awaits_verdict) return;
        s.caller = now.begun == goes || now.begun == begins ? Caller::leaves : Caller::reads;
        break;
      case Caller::reads:
        s.read = 1;
        s.caller = Caller::over;
        break;
      case Caller::leaves:
        if (now.copied == 0) return;
        s.caller = Caller::over;
        break;
      case Caller::over:
        return;
    }
    next.push_back(s);
  }

  const Protocol protocol_;
};

TEST(RevocationProtocol, OneOfTheTwoMovesThePayload) {
  Model model({});
  EXPECT_EQ(model.check(), std::nullopt);
  EXPECT_GT(model.states(), 50U);
}

TEST(RevocationProtocol, WhatIsMissingIsCaught) {
  EXPECT_EQ(Model({.kernel_fences = false}).check(), "both move it");
  EXPECT_EQ(Model({.caller_fences = false}).check(), "both move it");
  EXPECT_EQ(Model({.awaits_verdict = false}).check(), "who calls off waits for ever");
  EXPECT_EQ(Model({.says_that_it_stays_away = false}).check(), "who calls off waits for ever");
}

}  // namespace
}  // namespace crosslane::test::revocation
