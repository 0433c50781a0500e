// The protocol between a host and a kernel that stays (the table in kernel/lingering.h), by exhaustive interleaving: every order in which a
// host that rings, launches or sends away, and is held up anywhere, and kernels that leave at any time see each other's writes. Each call is
// carried out once, and nobody waits for ever; and protocols with a piece missing must be caught.
#include "support/interleaving.h"

#include "kernel/lingering.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::test {
namespace {

using kernel::Bell;

constexpr std::uint8_t calls = 4;

// What a protocol may lack.
struct Protocol {
  bool kernel_looks_again = true, host_looks = true, waits_for_verdict = true, fences = true;
  bool states_name_rings = true;  // else: only whether the kernel has left since its launch
};

enum class Host : std::uint8_t { begins, looks, waits_for_verdict, waits, over };
enum class Kernel : std::uint8_t { none, runs, listens, says_leaving, looks_again, says_heard, says_left };

// All that there is, small enough to be a key.
struct State {
  Host host = Host::begins;
  std::uint8_t call = 0;               // of the host; from 1 on
  std::uint8_t rung = 0;               // as it counts
  bool stays = false;                  // as it believes
  std::uint8_t bell = 0, told = 0;     // the last ring, and its call; 0: to leave
  std::uint8_t state = 0, unseen = 0;  // by the host; and what is on its way there
  std::uint8_t done = 0;               // the last call that was carried out
  std::uint8_t times[calls + 1]{};
  Kernel kernel = Kernel::none;
  std::uint8_t runs = 0, awaits = 0;         // the kernel's call, and the ring that it waits for behind it
  bool plain = false;                        // it does not stay
  std::uint8_t queued = 0, queued_rung = 0;  // behind it on the stream: a call, and the last ring before
  bool queued_plain = false;

  [[nodiscard]] std::string key() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};

class Model : public Searched<Model, State> {
 public:
  explicit Model(const Protocol& protocol) : protocol_(protocol) {}

 private:
  friend Searched<Model, State>;
  void follow(const State& now, std::vector<State>& next) const {
    host(now, next);
    gpu(now, next);
  }
  static std::optional<std::string> judge(const State& now, bool nothing_follows) {
    for (int call = 1; call <= calls; ++call)
      if (now.times[call] > 1) return "a call is carried out twice";
    if (nothing_follows && now.host != Host::over)
      return "the host waits for ever for call " + std::to_string(now.call);
    if (nothing_follows && now.done != calls) return "a call is left out";
    return std::nullopt;
  }

  [[nodiscard]] std::uint8_t leaving(std::uint8_t ring) const { return named(Bell::leaving(ring), Bell::leaving(0)); }
  [[nodiscard]] std::uint8_t left(std::uint8_t ring) const { return named(Bell::left(ring), Bell::left(0)); }
  [[nodiscard]] std::uint8_t heard(std::uint8_t ring) const { return named(Bell::heard(ring), Bell::heard(0)); }
  [[nodiscard]] std::uint8_t named(std::uint64_t ring, std::uint64_t alone) const {
    return static_cast<std::uint8_t>(protocol_.states_name_rings ? ring : alone);
  }

  void launch(State& s, bool plain) const {
    if (!plain) ++s.rung;
    s.queued = s.call;
    s.queued_rung = s.rung;
    s.queued_plain = plain;
    s.stays = !plain;
    if (!plain && !protocol_.states_name_rings) s.state = s.unseen = 0;
    s.host = Host::waits;
  }
  static void ring(State& s, std::uint8_t call) {
    s.bell = ++s.rung;
    s.told = call;
  }

  void host(const State& now, std::vector<State>& next) const {
    State s = now;
    switch (now.host) {
      case Host::begins: {
        if (now.call == calls) {
          s.host = Host::over;
          next.push_back(s);
          break;
        }
        ++s.call;
        const bool gone = now.state == left(static_cast<std::uint8_t>(now.rung + 1));
        // A call of another kind: what stays is sent away.
        State other = s;
        if (now.stays && !gone) ring(other, 0);
        launch(other, true);
        next.push_back(other);
        State another = s;
        if (now.stays && !gone) ring(another, 0);
        launch(another, false);
        next.push_back(another);
        // The same kind.
        if (!now.stays) break;
        if (gone) {
          launch(s, false);
        } else {
          ring(s, s.call);
          s.host = protocol_.host_looks ? Host::looks : Host::waits;
        }
        next.push_back(s);
        break;
      }
      case Host::looks:
      case Host::waits_for_verdict:
        if (now.state == leaving(now.rung) && protocol_.waits_for_verdict) {
          if (now.host == Host::waits_for_verdict) break;  // until something else changes
          s.host = Host::waits_for_verdict;
        } else if (now.state == left(now.rung)) {
          launch(s, false);
        } else {
          s.host = Host::waits;
        }
        next.push_back(s);
        break;
      case Host::waits:
        if (now.done != now.call) break;
        s.host = Host::begins;
        next.push_back(s);
        break;
      case Host::over:
        break;
    }
  }

  void say(State& s, std::uint8_t state) const {
    s.unseen = state;
    if (protocol_.fences) s.state = state;
  }
  static void take(State& s, std::uint8_t call, Kernel otherwise) {
    s.runs = call;
    s.kernel = call != 0 ? Kernel::runs : otherwise;
  }

  void gpu(const State& now, std::vector<State>& next) const {
    State s = now;
    if (now.unseen != now.state) {
      s.state = now.unseen;
      next.push_back(s);
      s = now;
    }
    switch (now.kernel) {
      case Kernel::none:
        if (now.queued == 0) return;
        s.kernel = Kernel::runs;
        s.runs = now.queued;
        s.awaits = static_cast<std::uint8_t>(now.queued_rung + 1);
        s.plain = now.queued_plain;
        s.queued = 0;
        break;
      case Kernel::runs:
        ++s.times[now.runs];
        s.done = now.runs;
        s.kernel = now.plain ? Kernel::none : Kernel::listens;
        break;
      case Kernel::listens:
        if (now.bell == now.awaits) {
          ++s.awaits;
          take(s, now.told, Kernel::none);
        } else {
          s.kernel = Kernel::says_leaving;  // its time may be over
        }
        break;
      case Kernel::says_leaving:
        say(s, leaving(now.awaits));
        s.kernel = protocol_.kernel_looks_again ? Kernel::looks_again : Kernel::says_left;
        break;
      case Kernel::looks_again:
        s.kernel = now.bell == now.awaits ? Kernel::says_heard : Kernel::says_left;
        break;
      case Kernel::says_heard:
        say(s, heard(now.awaits));
        ++s.awaits;
        take(s, now.told, Kernel::none);
        break;
      case Kernel::says_left:
        say(s, left(now.awaits));
        s.kernel = Kernel::none;
        break;
    }
    next.push_back(s);
  }

  Protocol protocol_;
};

TEST(RingingTest, EachCallIsCarriedOutOnce) {
  Model model(Protocol{});
  EXPECT_EQ(model.check(), std::nullopt);
  EXPECT_GT(model.states(), 1000U);
}

TEST(RingingTest, EveryPieceIsNeeded) {
  EXPECT_TRUE(Model({.kernel_looks_again = false}).check()) << "a kernel that does not look again";
  EXPECT_TRUE(Model({.host_looks = false}).check()) << "a host that does not look behind its ring";
  EXPECT_TRUE(Model({.waits_for_verdict = false}).check()) << "a host that does not wait for what the kernel says next";
  EXPECT_TRUE(Model({.fences = false}).check()) << "a state that is seen later than the look behind it";
  EXPECT_TRUE(Model({.states_name_rings = false}).check())
      << "a host that is held up takes a later leaving for this one";
}

}  // namespace
}  // namespace crosslane::test
