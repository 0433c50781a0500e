// The protocol by which members of a team agree on each call's way (the table in share/board.h, and team::Team::enter), by
// exhaustive interleaving: every order in which 2 or 3 members can make its reads and writes, over every mix of calls that may wait
// and calls that may not. All go one way, nobody waits in a circle; and protocols with a piece missing must be caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace crosslane::test {
namespace {

constexpr std::size_t most_members = 3;
constexpr std::size_t most_calls = 5;
constexpr std::size_t most_ring = 2;
constexpr std::uint8_t for_ever = 255;

// What is tried, and what the protocol may lack.
struct Setting {
  std::size_t members, calls, ring;
  std::size_t device_at;        // member 0 sees a device before this call
  std::uint32_t starting = 0;   // bit member * calls + call: that call may not wait
  std::uint32_t wishing = ~0U;  // ... wishes to go direct
  bool looks_again = true, grows = true, waits = true, counts_lapses = true;
};

enum class Way : std::uint8_t { none, unasked, staged, direct };

// Where a member is within a call: each of these makes one read or write of shared memory.
enum class At : std::uint8_t {
  device,
  enter,
  look_for_device,
  behind,  // reads `entered` of member `other`; what follows depends on `reason`
  past,
  open,
  move,
  lapse,
  ask,
  count,
  everybody,
  entered,
  until,
  from,
  claim,
  over,
};
enum class Reason : std::uint8_t { first, asking, again, waiting };

struct Member {
  At at = At::device;
  Reason reason = Reason::first;
  std::uint8_t call = 1, other = 0, all_past = 0;
  std::uint8_t asks = 0, everybody = 0, lapses = 0, read = 0, lowest = 0, clear_until = 0;
  std::array<Way, most_calls> way{};
};

struct State {
  std::array<Member, most_members> member{};
  std::array<std::uint8_t, most_members> entered{}, from{}, until{};
  std::array<std::uint8_t, most_ring> verdict_of{};
  std::array<Way, most_ring> verdict{};
  std::uint8_t device = 0, lapses = 0;
};
static_assert(std::has_unique_object_representations_v<State>);

// States by their bytes, each once, numbered as they come. Open addressing: there are millions.
class States {
 public:
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const State& operator[](std::size_t number) const { return all_[number]; }
  // False if it was there.
  bool insert(const State& state) {
    if (2 * all_.size() >= place_.size()) grow();
    std::uint32_t& place = place_for(state);
    if (place != none) return false;
    place = static_cast<std::uint32_t>(all_.size());
    all_.push_back(state);
    return true;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  static std::size_t hash(const State& state) {
    std::array<std::uint64_t, (sizeof state + 7) / 8> words{};
    std::memcpy(words.data(), &state, sizeof state);
    std::uint64_t hash = 0;
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29U;
    }
    return hash;
  }
  std::uint32_t& place_for(const State& state) {
    std::size_t at = hash(state) % place_.size();
    while (place_[at] != none && std::memcmp(&all_[place_[at]], &state, sizeof state) != 0)
      at = (at + 1) % place_.size();
    return place_[at];
  }
  void grow() {
    place_.assign(std::max<std::size_t>(2 * place_.size(), 1024), none);
    for (std::size_t number = 0; number < all_.size(); ++number)
      place_for(all_[number]) = static_cast<std::uint32_t>(number);
  }

  std::vector<State> all_;
  std::vector<std::uint32_t> place_;  // a power of two; by hash, the number of the state
};

class Search {
 public:
  explicit Search(const Setting& setting) : setting_(setting) {}

  // What went wrong first; empty if nothing can.
  std::string run() {
    State first{};
    first.until.fill(for_ever);
    for (Member& member : first.member)
      member.at = member_at_start(static_cast<std::size_t>(&member - first.member.data()));
    visit(first);
    while (!open_.empty() && wrong_.empty()) {
      const State state = seen_[open_.back()];
      open_.pop_back();
      bool moved = false, all_over = true;
      for (std::size_t m = 0; m < setting_.members && wrong_.empty(); ++m) {
        if (state.member[m].at == At::over) continue;
        all_over = false;
        State next = state;
        if (!step(next, m)) continue;
        moved = true;
        visit(next);
      }
      if (!moved && !all_over && wrong_.empty()) wrong_ = "all wait";
    }
    return wrong_;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  [[nodiscard]] At member_at_start(std::size_t m) const {
    return m == 0 && setting_.device_at == 1 ? At::device : At::enter;
  }
  [[nodiscard]] bool bit(std::uint32_t bits, std::size_t m, std::size_t call) const {
    return (bits >> (m * setting_.calls + call - 1) & 1U) != 0;
  }

  void visit(const State& state) {
    if (seen_.insert(state)) open_.push_back(seen_.size() - 1);
  }

  void go(Member& mine, At at, std::size_t m) {
    mine.at = at;
    mine.other = 0;
    if ((at == At::behind || at == At::entered) && m == 0) mine.other = 1;
    mine.lowest = for_ever;
    mine.all_past = 1;
  }

  // The next member after `other` but m; false if there is none.
  [[nodiscard]] bool next_other(Member& mine, std::size_t m) const {
    ++mine.other;
    if (mine.other == m) ++mine.other;
    return mine.other < setting_.members;
  }

  void end(State& state, std::size_t m, Way way) {
    Member& mine = state.member[m];
    mine.way[mine.call - 1U] = way;
    for (std::size_t other = 0; other < setting_.members; ++other) {
      const Way theirs = state.member[other].way[mine.call - 1U];
      if (theirs != Way::none && (theirs == Way::direct) != (way == Way::direct)) wrong_ = "two ways of one call";
    }
    mine.read = 0;
    ++mine.call;
    const bool sees = m == 0 && mine.call == setting_.device_at;
    go(mine, mine.call > setting_.calls ? At::over : sees ? At::device : At::enter, m);
  }

  void look_behind(Member& mine, Reason reason, std::size_t m) {
    mine.reason = reason;
    if (mine.call <= mine.clear_until) {
      not_behind(mine, m);
    } else {
      go(mine, At::behind, m);
    }
  }
  void not_behind(Member& mine, std::size_t m) {
    const bool asks_anew = mine.reason == Reason::first || mine.reason == Reason::again;
    go(mine, asks_anew ? At::ask : At::count, m);
  }

  // False: it has to wait.
  bool step(State& state, std::size_t m) {
    Member& mine = state.member[m];
    const std::uint8_t call = mine.call;
    const bool starts = bit(setting_.starting, m, call);
    switch (mine.at) {
      case At::device:
        state.device = 1;
        go(mine, At::enter, m);
        return true;
      case At::enter:
        state.entered[m] = call;
        if (mine.asks == 0) {
          go(mine, At::look_for_device, m);
        } else {
          look_behind(mine, starts ? Reason::asking : Reason::waiting, m);
        }
        return true;
      case At::look_for_device:
        if (state.device == 0) {
          end(state, m, Way::unasked);
        } else if (starts) {
          look_behind(mine, Reason::first, m);
        } else {
          go(mine, At::ask, m);
        }
        return true;
      case At::behind: {
        const std::uint8_t theirs = state.entered[mine.other];
        const bool lags = call >= setting_.ring && theirs + setting_.ring < call + 1U;
        if (lags && mine.reason == Reason::waiting && setting_.waits) return false;
        if (lags && mine.reason == Reason::asking) {
          go(mine, At::past, m);
          return true;
        }
        if (lags && mine.reason != Reason::waiting && (mine.reason != Reason::again || setting_.looks_again)) {
          mine.asks = 0;
          end(state, m, Way::unasked);
          return true;
        }
        mine.lowest = std::min(mine.lowest, theirs);
        if (next_other(mine, m)) return true;
        mine.clear_until =
            static_cast<std::uint8_t>(std::max<std::size_t>(mine.clear_until, mine.lowest + setting_.ring - 1));
        not_behind(mine, m);
        return true;
      }
      case At::past:
        if (state.entered[mine.other] < state.until[m]) mine.all_past = 0;
        if (++mine.other == setting_.members) mine.at = At::open;
        return true;
      case At::open:
        state.until[m] = for_ever;
        mine.at = At::move;
        return true;
      case At::move:
        if (mine.all_past != 0 || !setting_.grows) state.from[m] = call;
        mine.at = At::lapse;
        return true;
      case At::lapse:
        if (setting_.counts_lapses) ++state.lapses;
        if (setting_.looks_again) {
          look_behind(mine, Reason::again, m);
        } else {
          mine.asks = 0;
          end(state, m, Way::unasked);
        }
        return true;
      case At::ask:
        state.until[m] = call;
        mine.asks = 1;
        if (starts) {
          go(mine, At::count, m);
        } else {
          look_behind(mine, Reason::waiting, m);
        }
        return true;
      case At::count:
        if (mine.everybody != 0 && state.lapses == mine.lapses) {
          go(mine, At::claim, m);
          mine.read = 1;
        } else {
          mine.lapses = state.lapses;
          mine.everybody = 1;
          go(mine, At::everybody, m);
        }
        return true;
      case At::everybody:
        if (state.until[mine.other] > call) mine.everybody = 0;
        if (++mine.other == setting_.members) {
          mine.read = 1;  // may go direct, unless what follows says otherwise
          go(mine, mine.everybody != 0 ? At::claim : At::entered, m);
        }
        return true;
      case At::entered:
        if (state.entered[mine.other] >= call) {
          mine.at = At::until;
        } else if (!next_other(mine, m)) {
          mine.at = At::claim;
        }
        return true;
      case At::until:
        if (state.until[mine.other] > call) {
          mine.at = At::from;
        } else {
          mine.at = next_other(mine, m) ? At::entered : At::claim;
        }
        return true;
      case At::from:
        if (state.from[mine.other] <= call) {
          mine.read = 0;
          mine.at = At::claim;
        } else {
          mine.at = next_other(mine, m) ? At::entered : At::claim;
        }
        return true;
      case At::claim: {
        const std::size_t place = call % setting_.ring;
        if (state.verdict_of[place] > call) {
          wrong_ = "a verdict was overrun";
          return true;
        }
        if (state.verdict_of[place] < call) {
          state.verdict_of[place] = call;
          state.verdict[place] = mine.read != 0 && bit(setting_.wishing, m, call) ? Way::direct : Way::staged;
        }
        end(state, m, state.verdict[place]);
        return true;
      }
      case At::over:
        break;
    }
    return false;
  }

  const Setting setting_;
  States seen_;
  std::vector<std::size_t> open_;
  std::string wrong_;
};

std::string text(const Setting& setting) {
  return std::to_string(setting.members) + " members, " + std::to_string(setting.calls) + " calls, a ring of " +
         std::to_string(setting.ring) + ", a device at " + std::to_string(setting.device_at) + ", starting " +
         std::to_string(setting.starting) + ", wishing " + std::to_string(setting.wishing);
}

TEST(VerdictProtocol, TwoMembersGoOneWay) {
  std::size_t states = 0;
  for (const auto& [calls, ring] : {std::pair<std::size_t, std::size_t>{3, 1}, {4, 2}}) {
    for (const std::size_t device_at : {1, 2}) {
      for (std::uint32_t starting = 0; starting < 1U << (2 * calls); ++starting) {
        const Setting setting{.members = 2, .calls = calls, .ring = ring, .device_at = device_at, .starting = starting};
        Search search(setting);
        ASSERT_EQ(search.run(), "") << text(setting);
        states += search.states();
      }
    }
  }
  RecordProperty("states", std::to_string(states));
}

TEST(VerdictProtocol, WishesMayDiffer) {
  for (const std::uint32_t wishing : {0b0101'0011U, 0b0000'1111U, 0b1001'0110U}) {
    for (std::uint32_t starting = 0; starting < 1U << 8U; starting += 15) {
      const Setting setting{
          .members = 2, .calls = 4, .ring = 2, .device_at = 1, .starting = starting, .wishing = wishing};
      ASSERT_EQ(Search(setting).run(), "") << text(setting);
    }
  }
}

TEST(VerdictProtocol, ThreeMembersGoOneWay) {
  for (std::uint32_t starting = 0; starting < 1U << 6U; starting += 3) {
    const Setting setting{.members = 3, .calls = 2, .ring = 1, .device_at = 1, .starting = starting};
    ASSERT_EQ(Search(setting).run(), "") << text(setting);
  }
}

// With calls that show that the piece is needed.
TEST(VerdictProtocol, EachPieceIsNeeded) {
  // Member 0 starts its last call only.
  EXPECT_EQ(
      Search({.members = 2, .calls = 3, .ring = 1, .device_at = 1, .starting = 0b100, .counts_lapses = false}).run(),
      "two ways of one call");
  EXPECT_EQ(
      Search({.members = 2, .calls = 3, .ring = 1, .device_at = 1, .starting = 0b100, .looks_again = false}).run(),
      "two ways of one call");
  EXPECT_EQ(Search({.members = 2, .calls = 3, .ring = 1, .device_at = 1, .waits = false}).run(),
            "a verdict was overrun");
  // Member 0 lapses in call 3, asks in call 4, and lapses again in call 5, while member 1 still looks at call 3.
  EXPECT_EQ(Search({.members = 2, .calls = 5, .ring = 2, .device_at = 1, .starting = 0b11100, .grows = false}).run(),
            "two ways of one call");
  EXPECT_EQ(Search({.members = 2, .calls = 5, .ring = 2, .device_at = 1, .starting = 0b11100}).run(), "");
}

}  // namespace
}  // namespace crosslane::test
