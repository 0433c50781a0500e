// The protocol inside a kernel that stays (the second table in kernel/lingering.h), by exhaustive interleaving: block 0 passes on what it hears,
// or that it leaves, and others read it word by word as late as they like, in one launch and in the next; some calls bring a word more than the
// others. All blocks take part in each call once, with its words, and none is left behind; and protocols with a piece missing must be caught.
#include "support/interleaving.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::test::passing_on {
namespace {

constexpr std::uint8_t blocks = 3, words = 3, calls = 4;
constexpr std::uint8_t all_words = (1U << words) - 1;
// The last word is one that only some calls bring, as the others tell.
constexpr std::uint8_t base_words = all_words >> 1;
constexpr std::uint8_t words_of(std::uint8_t call) { return call % 2 != 0 ? all_words : base_words; }

// What a protocol may lack.
struct Protocol {
  bool leaves_when_over = true;     // else: as soon as block 0 is through with its part
  bool rings_when_over = true;      // else: as soon as block 0 is
  bool leaves_in_all_words = true;  // else: in the first
  bool launches_count_as_rings = true;
  bool tells_first = true;  // else: who reads looks at the word of some calls whether the others tell of it or not
};

enum class At : std::uint8_t { gone, works, listens, passes_on, reads };

// All that there is, small enough to be a key. A word holds its ring, and the call; 0: to leave.
struct State {
  struct Word {
    std::uint8_t ring, call;
  };
  struct Block {
    At at = At::gone;
    std::uint8_t call = 0;    // its own, or the last one
    std::uint8_t ring = 0;    // for which it waits, or which it passes on
    std::uint8_t heard = 0;   // what it was told, or tells: 0: to leave
    std::uint8_t masked = 0;  // words that it has read, or written
  };

  std::uint8_t call = 0, rung = 0, bell = 0;  // of the host; and the call that it has rung for
  std::array<Word, words> told{};
  std::array<Block, blocks> block{};
  std::array<std::uint8_t, calls + 1> through{};  // blocks
  bool mixed = false;                             // a block has read a word of another call

  [[nodiscard]] std::string key() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  [[nodiscard]] bool gone() const {
    for (const Block& each : block)
      if (each.at != At::gone) return false;
    return true;
  }
};

class Model : public Searched<Model, State> {
 public:
  explicit Model(const Protocol& protocol) : protocol_(protocol) {}

 private:
  friend Searched<Model, State>;
  void follow(const State& now, std::vector<State>& next) const {
    host(now, next);
    for (std::uint8_t b = 0; b < blocks; ++b) step(now, b, next);
  }
  static std::optional<std::string> judge(const State& now, bool nothing_follows) {
    for (const std::uint8_t through : now.through)
      if (through > blocks) return "a block takes part twice";
    if (now.mixed) return "a block has words of two calls";
    if (nothing_follows && !now.gone()) return "a block waits for ever";
    if (nothing_follows && now.through[calls] != blocks) return "a call is left out";
    return std::nullopt;
  }

  // A call is launched where nobody is left, or rung for where the one before is over.
  void host(const State& now, std::vector<State>& next) const {
    if (now.call == calls) return;
    State s = now;
    ++s.call;
    if (now.gone()) {
      if (protocol_.launches_count_as_rings) ++s.rung;
      for (State::Block& block : s.block)
        block = {.at = At::works, .call = s.call, .ring = s.rung, .heard = 0, .masked = 0};
      s.bell = 0;
      next.push_back(s);
    } else if (over(now, protocol_.rings_when_over) && now.bell == 0 && now.block[0].at == At::listens) {
      // That block 0 hears for certain, or has left, is the other table's matter.
      s.bell = s.call;
      ++s.rung;
      next.push_back(s);
    }
  }
  static bool over(const State& now, bool by_all) {
    return by_all ? now.through[now.call] == blocks : now.block[0].at == At::listens;
  }

  void step(const State& now, std::uint8_t b, std::vector<State>& next) const {
    State s = now;
    State::Block& mine = s.block[b];
    switch (mine.at) {
      case At::gone:
        return;
      case At::works:
        ++s.through[mine.call];
        ++mine.ring;
        mine.masked = 0;
        mine.at = b == 0 ? At::listens : At::reads;
        next.push_back(s);
        return;
      case At::listens:
        if (now.bell != 0) {
          s.bell = 0;
          mine.heard = now.bell;
          mine.at = At::passes_on;
          next.push_back(s);
        } else if (over(now, protocol_.leaves_when_over)) {
          mine.heard = 0;
          mine.at = At::passes_on;
          next.push_back(s);
        }
        return;
      case At::passes_on: {
        const std::uint8_t all = mine.heard != 0 ? words_of(mine.heard) : protocol_.leaves_in_all_words ? all_words : 1;
        for (std::uint8_t w = 0; w < words; ++w) {
          if ((all >> w & 1) == 0 || (mine.masked >> w & 1) != 0) continue;
          State written = s;
          written.told[w] = {mine.ring, mine.heard};
          written.block[b].masked |= static_cast<std::uint8_t>(1U << w);
          if (written.block[b].masked == all) go_on(written.block[b]);
          next.push_back(written);
        }
        return;
      }
      case At::reads:
        for (std::uint8_t w = 0; w < words; ++w) {
          const std::uint8_t wanted = !protocol_.tells_first      ? all_words
                                      : mine.masked != base_words ? base_words
                                                                  : words_of(mine.heard);
          if ((wanted >> w & 1) == 0 || (mine.masked >> w & 1) != 0 || now.told[w].ring != mine.ring) continue;
          State read = s;
          State::Block& reader = read.block[b];
          if (w == 0) reader.heard = now.told[w].call;
          read.mixed = read.mixed || ((reader.masked & 1) != 0 && now.told[w].call != reader.heard);
          reader.masked |= static_cast<std::uint8_t>(1U << w);
          const bool leaves = reader.masked == base_words && reader.heard == 0;
          if (leaves || reader.masked == (protocol_.tells_first ? words_of(reader.heard) : all_words)) go_on(reader);
          next.push_back(read);
        }
        return;
    }
  }
  static void go_on(State::Block& block) {
    block.at = block.heard != 0 ? At::works : At::gone;
    block.call = block.heard;
  }

  Protocol protocol_;
};

TEST(PassingOnTest, AllBlocksTakePartOnce) {
  Model model(Protocol{});
  EXPECT_EQ(model.check(), std::nullopt);
  EXPECT_GT(model.states(), 100U);
}

TEST(PassingOnTest, EveryPieceIsNeeded) {
  EXPECT_TRUE(Model({.leaves_when_over = false}).check()) << "block 0 leaves before others have read what it passed on";
  EXPECT_TRUE(Model({.rings_when_over = false}).check()) << "a host rings before others have read what was passed on";
  EXPECT_TRUE(Model({.leaves_in_all_words = false}).check()) << "who leaves tells it in one word of several";
  EXPECT_TRUE(Model({.launches_count_as_rings = false}).check())
      << "a launch waits for the ring that the last one left at";
  EXPECT_TRUE(Model({.tells_first = false}).check()) << "a block waits for a word that its call does not bring";
}

}  // namespace
}  // namespace crosslane::test::passing_on
