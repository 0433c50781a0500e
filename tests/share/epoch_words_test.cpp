// The words by which the ranks of a node tell each other of a window's epochs (the table in share/epoch_words.h): every order in which two or three ranks
// can come to the calls of a program that uses them, and ranks as threads, so that ThreadSanitizer sees what the words order. Nobody is where another
// one excludes him, nobody waits for ever; and programs with a piece missing must be caught.
#include "share/epoch_words.h"
#include "support/interleaving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace crosslane::test::epochs {
namespace {

using share::EpochWords;

// All ranks' views, in one process.
class Ranks {
 public:
  explicit Ranks(std::size_t count) {
    parts_.assign(count, std::vector<std::byte>(EpochWords::bytes_for(static_cast<int>(count))));
    std::vector<std::byte*> addresses;
    for (auto& part : parts_) addresses.push_back(part.data());
    for (std::size_t rank = 0; rank < count; ++rank) views_.emplace_back(addresses, static_cast<int>(rank));
  }
  const EpochWords& operator[](std::size_t rank) const { return views_[rank]; }
  [[nodiscard]] std::size_t count() const { return views_.size(); }

  // All that is told, to go back to.
  [[nodiscard]] std::string told() const {
    std::string all;
    for (const auto& part : parts_) all.append(reinterpret_cast<const char*>(part.data()), part.size());
    return all;
  }
  void tell(const std::string& all) {
    const char* from = all.data();
    for (auto& part : parts_) {
      std::memcpy(part.data(), from, part.size());
      from += part.size();
    }
  }

 private:
  std::vector<std::vector<std::byte>> parts_;
  std::vector<EpochWords> views_;
};

TEST(EpochWordsTest, ALockIsSharedOrNot) {
  const Ranks ranks(3);
  EXPECT_TRUE(ranks[0].try_share(2));
  EXPECT_TRUE(ranks[2].try_share(2));
  EXPECT_FALSE(ranks[1].try_exclude(2));
  EXPECT_TRUE(ranks[1].try_exclude(0));  // another one
  ranks[0].stop_sharing(2);
  EXPECT_FALSE(ranks[1].try_exclude(2));
  ranks[2].stop_sharing(2);
  EXPECT_TRUE(ranks[1].try_exclude(2));
  EXPECT_FALSE(ranks[1].try_exclude(2));
  EXPECT_FALSE(ranks[0].try_share(2));
  ranks[1].stop_excluding(2);
  EXPECT_TRUE(ranks[0].try_share(2));
  EXPECT_FALSE(ranks[0].waited_for(2));
  ranks[1].begin_waiting(2);
  ranks[2].begin_waiting(2);
  ranks[1].end_waiting(2);
  EXPECT_TRUE(ranks[0].waited_for(2));
  EXPECT_FALSE(ranks[0].waited_for(1));
  ranks[2].end_waiting(2);
  EXPECT_FALSE(ranks[0].waited_for(2));
}

TEST(EpochWordsTest, FencesAndPostsAreCounted) {
  const Ranks ranks(2);
  EXPECT_EQ(ranks[0].come_to_fence(), 1U);
  EXPECT_TRUE(ranks[1].is_at_fence(0, 1));
  EXPECT_FALSE(ranks[0].is_at_fence(1, 1));
  EXPECT_EQ(ranks[0].come_to_fence(), 2U);
  EXPECT_EQ(ranks[1].come_to_fence(), 1U);
  ranks[0].post(1);
  EXPECT_TRUE(ranks[1].is_posted(0, 1));
  EXPECT_FALSE(ranks[1].is_posted(0, 2));
  EXPECT_FALSE(ranks[0].is_posted(1, 1));
  EXPECT_FALSE(ranks[0].is_complete(1, 1));
  ranks[1].complete(0);
  EXPECT_TRUE(ranks[0].is_complete(1, 1));
  EXPECT_FALSE(ranks[0].is_complete(1, 2));
  EXPECT_FALSE(ranks[1].is_complete(0, 1));
}

// One step of a rank: at most one of its accesses to the words.
struct Step {
  enum class What : std::uint8_t {
    exclude,
    stop_excluding,
    share,
    share_or,  // else goes on at step `other`
    stop_sharing,
    guard,
    unguard,
    come_to_fence,
    await_fence,  // of rank `target`
    post,
    start,
    complete,
    end_post,
    read,
    write,
    leave,  // that access is over
    go_to
  };
  What what;
  std::size_t target = 0;
  std::size_t other = 0;
};
using What = Step::What;
using Program = std::vector<Step>;

constexpr std::size_t most_ranks = 3, nowhere = 99;

// An access by a rank to memory of another.
struct Access {
  std::size_t target = nowhere;
  bool writes = false;
};

struct State {
  std::string words;
  std::array<std::uint8_t, most_ranks> at{}, fences{};
  std::array<Access, most_ranks> access{};
  std::array<std::array<std::uint8_t, most_ranks>, most_ranks> started{}, ended{};  // by rank and the other one

  [[nodiscard]] std::string key() const {
    std::string all = words;
    const auto add = [&](const auto& some) { all.append(reinterpret_cast<const char*>(&some), sizeof some); };
    add(at);
    add(fences);
    add(started);
    add(ended);
    for (const Access& one : access) all += {static_cast<char>(one.target), one.writes ? '1' : '0'};
    return all;
  }
};

class Search {
 public:
  explicit Search(std::vector<Program> programs) : programs_(std::move(programs)), ranks_(programs_.size()) {}

  // What goes wrong, if anything.
  std::optional<std::string> run() {
    State first;
    first.words = ranks_.told();
    return seen_.search(
        first, [this](const State& now, std::vector<State>& next) { follow(now, next); },
        [this](const State& now, bool nothing_follows) { return judge(now, nothing_follows); });
  }
  [[nodiscard]] std::size_t states() const { return seen_.states(); }

 private:
  void follow(const State& now, std::vector<State>& next) {
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      if (now.at[rank] == programs_[rank].size()) continue;
      State s = now;
      ranks_.tell(now.words);
      ++s.at[rank];
      if (!take(s, rank, programs_[rank][now.at[rank]])) continue;
      s.words = ranks_.told();
      next.push_back(std::move(s));
    }
  }

  // False where it waits.
  bool take(State& s, std::size_t rank, const Step& step) {
    const EpochWords& words = ranks_[rank];
    const int target = static_cast<int>(step.target);
    switch (step.what) {
      case What::exclude:
        return words.try_exclude(target);
      case What::stop_excluding:
        words.stop_excluding(target);
        return true;
      case What::share:
        return words.try_share(target);
      case What::share_or:
        if (!words.try_share(target)) s.at[rank] = static_cast<std::uint8_t>(step.other);
        return true;
      case What::stop_sharing:
        words.stop_sharing(target);
        return true;
      case What::guard:
        return words.try_guard(target);
      case What::unguard:
        words.unguard(target);
        return true;
      case What::come_to_fence:
        s.fences[rank] = static_cast<std::uint8_t>(words.come_to_fence());
        return true;
      case What::await_fence:
        return words.is_at_fence(target, s.fences[rank]);
      case What::post:
        words.post(target);
        return true;
      case What::start:
        return words.is_posted(target, ++s.started[rank][step.target]);
      case What::complete:
        words.complete(target);
        return true;
      case What::end_post:
        return words.is_complete(target, ++s.ended[rank][step.target]);
      case What::read:
      case What::write:
        s.access[rank] = {step.target, step.what == What::write};
        return true;
      case What::leave:
        s.access[rank] = {};
        return true;
      case What::go_to:
        s.at[rank] = static_cast<std::uint8_t>(step.other);
        return true;
    }
    return false;
  }

  [[nodiscard]] std::optional<std::string> judge(const State& now, bool nothing_follows) const {
    for (std::size_t one = 0; one < programs_.size(); ++one)
      for (std::size_t other = one + 1; other < programs_.size(); ++other) {
        const Access &mine = now.access[one], &theirs = now.access[other];
        if (mine.target != nowhere && mine.target == theirs.target && (mine.writes || theirs.writes))
          return "two are in one rank's memory at once";
      }
    for (std::size_t rank = 0; nothing_follows && rank < programs_.size(); ++rank)
      if (now.at[rank] != programs_[rank].size()) return "somebody waits for ever";
    return std::nullopt;
  }

  const std::vector<Program> programs_;
  Ranks ranks_;
  Interleavings seen_;
};

Program operator+(Program one, const Program& other) {
  const std::size_t before = one.size();
  for (Step step : other) {
    if (step.what == What::share_or || step.what == What::go_to) step.other += before;
    one.push_back(step);
  }
  return one;
}

Program reading(std::size_t target) { return {{What::read, target}, {What::leave}}; }
Program writing(std::size_t target) { return {{What::write, target}, {What::leave}}; }
Program alone(std::size_t target) {
  return Program{{What::exclude, target}} + writing(target) + Program{{What::stop_excluding, target}};
}
Program shared(std::size_t target) {
  return Program{{What::share, target}} + reading(target) + Program{{What::stop_sharing, target}};
}
Program guarded(std::size_t target) {
  return Program{{What::guard, target}} + writing(target) + Program{{What::unguard, target}};
}
// Both locks or none meanwhile, as MPI_Win_lock_all has them.
Program all_shared() {
  return Program{{What::share, 0},
                 {What::share_or, 1, 3},
                 {What::go_to, 0, 5},
                 {What::stop_sharing, 0},
                 {What::go_to, 0, 0}} +
         reading(0) + reading(1) + Program{{What::stop_sharing, 1}, {What::stop_sharing, 0}};
}
Program fence(std::size_t ranks) {
  Program program{{What::come_to_fence}};
  for (std::size_t rank = 0; rank < ranks; ++rank) program.push_back({What::await_fence, rank});
  return program;
}

void expect_right(const std::vector<Program>& programs) {
  Search search(programs);
  EXPECT_EQ(search.run(), std::nullopt);
  EXPECT_GT(search.states(), programs.size());
}
void expect_wrong(const std::vector<Program>& programs, const char* why) {
  Search search(programs);
  EXPECT_EQ(search.run(), why);
}
constexpr const char* collide = "two are in one rank's memory at once";
constexpr const char* hang = "somebody waits for ever";

TEST(EpochWordsTest, LocksInEveryOrder) {
  const std::array<Program, 6> menu{
      alone(0), shared(0), all_shared(), alone(0) + alone(1), shared(1) + alone(0), alone(1) + shared(0)};
  for (const Program& one : menu)
    for (const Program& other : menu) {
      expect_right({one, other});
      for (const Program& third : menu) expect_right({one, other, third});
    }
}

TEST(EpochWordsTest, LocksWithAPieceMissing) {
  expect_wrong({writing(0), alone(0)}, collide);
  expect_wrong({shared(0), Program{{What::share, 0}} + writing(0) + Program{{What::stop_sharing, 0}}}, collide);
  expect_wrong({Program{{What::exclude, 0}} + writing(0), shared(0)}, hang);
  // Who holds one of two while he waits for the other, beside who has them in the other order.
  const auto both = [](std::size_t first, std::size_t then) {
    return Program{
        {What::exclude, first}, {What::exclude, then}, {What::stop_excluding, then}, {What::stop_excluding, first}};
  };
  expect_right({both(0, 1), both(0, 1)});
  expect_wrong({both(0, 1), both(1, 0)}, hang);
}

TEST(EpochWordsTest, AllOfSomeLocksBesideWhoHasThemInTurn) {
  const auto held = Program{{What::exclude, 1}, {What::exclude, 0}} + writing(0) +
                    Program{{What::stop_excluding, 0}, {What::stop_excluding, 1}};
  expect_right({all_shared(), held});
  expect_right({all_shared(), held, all_shared()});
  expect_wrong({Program{{What::share, 0}, {What::share, 1}} + reading(0) +
                    Program{{What::stop_sharing, 1}, {What::stop_sharing, 0}},
                held},
               hang);
}

TEST(EpochWordsTest, GuardsInEveryOrder) {
  const auto twice = guarded(0) + guarded(1);
  expect_right({twice, twice});
  expect_right({twice, guarded(1) + guarded(0), guarded(0)});
  // A guard is for those in a lock that is shared.
  const auto inside = Program{{What::share, 0}} + guarded(0) + Program{{What::stop_sharing, 0}};
  expect_right({inside, inside, alone(0)});
  expect_wrong({guarded(0), writing(0)}, collide);
}

TEST(EpochWordsTest, FencesInEveryOrder) {
  for (const std::size_t ranks : {2U, 3U}) {
    std::vector<Program> programs;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      programs.push_back(writing(rank) + fence(ranks) + reading((rank + 1) % ranks) + fence(ranks) +
                         writing((rank + ranks - 1) % ranks) + fence(ranks));
    expect_right(programs);
    // Each fence keeps apart what is before it and behind it.
    programs.front() = writing(0) + fence(ranks) + reading(1) + writing(2 % ranks) + fence(ranks) + fence(ranks);
    expect_wrong(programs, collide);
    programs.front() = writing(0) + fence(ranks) + reading(1) + fence(ranks);
    expect_wrong(programs, hang);
  }
}

TEST(EpochWordsTest, PostsInEveryOrder) {
  // Rank 0 posts to the others in turns, twice, and touches its memory between.
  const auto origin = Program{{What::start, 0}} + writing(0) + Program{{What::complete, 0}};
  const auto to = [](std::size_t rank) { return Program{{What::post, rank}, {What::end_post, rank}} + writing(0); };
  expect_right({to(1) + to(1), origin + origin});
  expect_right({to(1) + to(2) + to(1), origin + origin, origin});
  // To both at once: they keep apart by themselves.
  const auto both = Program{{What::post, 1}, {What::post, 2}, {What::end_post, 1}, {What::end_post, 2}} + writing(0);
  const auto guarding = Program{{What::start, 0}} + guarded(0) + Program{{What::complete, 0}};
  expect_right({both + both, guarding + guarding, guarding + guarding});
  // Targets that are origins, too.
  const auto turn = [](std::size_t other, std::size_t me) {
    return Program{{What::post, other}, {What::start, other}} + writing(other) +
           Program{{What::complete, other}, {What::end_post, other}} + writing(me);
  };
  expect_right({turn(1, 0) + turn(1, 0), turn(0, 1) + turn(0, 1)});
  expect_wrong({writing(0) + to(1), writing(0) + Program{{What::start, 0}, {What::complete, 0}}}, collide);
  expect_wrong({Program{{What::post, 1}} + writing(0) + Program{{What::end_post, 1}}, origin}, collide);
  expect_wrong({to(1) + to(1), origin}, hang);
}

// Ranks as threads.

constexpr int rounds = 1000;

template <class Done>
void await(const Done& done) {
  while (!done()) std::this_thread::yield();
}

// All of them at once.
void play(const std::function<void(const EpochWords& words, std::size_t rank, std::mt19937& random)>& rank_of) {
  const auto seed = static_cast<std::uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Ranks ranks(most_ranks);
  std::atomic<std::size_t> here{0};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.count(); ++rank)
    threads.emplace_back([&, rank] {
      std::mt19937 random(seed + static_cast<std::uint32_t>(rank));
      here.fetch_add(1, std::memory_order_relaxed);
      await([&] { return here.load(std::memory_order_relaxed) == ranks.count(); });
      rank_of(ranks[rank], rank, random);
    });
  for (auto& thread : threads) thread.join();
}

// Others may come meanwhile.
void linger(std::mt19937& random) {
  if (random() % 4 == 0) std::this_thread::yield();
}

TEST(EpochWordsThreads, Locks) {
  std::array<std::uint64_t, most_ranks> value{}, written{};  // in each rank's memory; by each
  play([&](const EpochWords& words, std::size_t rank, std::mt19937& random) {
    for (int round = 0; round < rounds; ++round) {
      const std::size_t target = random() % most_ranks;
      const int there = static_cast<int>(target);
      if (random() % 2 == 0) {
        words.begin_waiting(there);
        await([&] { return words.try_exclude(there); });
        words.end_waiting(there);
        const std::uint64_t before = value[target];
        linger(random);
        value[target] = before + 1;
        ++written[rank];
        words.stop_excluding(there);
      } else {
        await([&] { return words.try_share(there); });
        const std::uint64_t before = value[target];
        linger(random);
        EXPECT_EQ(value[target], before);
        words.stop_sharing(there);
      }
    }
  });
  EXPECT_EQ(std::accumulate(value.begin(), value.end(), std::uint64_t{0}),
            std::accumulate(written.begin(), written.end(), std::uint64_t{0}));
}

TEST(EpochWordsThreads, Guards) {
  std::array<std::uint64_t, most_ranks> value{};
  play([&](const EpochWords& words, std::size_t, std::mt19937& random) {
    for (int round = 0; round < rounds; ++round) {
      const std::size_t target = random() % most_ranks;
      const int there = static_cast<int>(target);
      await([&] { return words.try_guard(there); });
      const std::uint64_t before = value[target];
      linger(random);
      value[target] = before + 1;
      words.unguard(there);
    }
  });
  EXPECT_EQ(std::accumulate(value.begin(), value.end(), std::uint64_t{0}), most_ranks * rounds);
}

TEST(EpochWordsThreads, Fences) {
  std::array<std::uint64_t, most_ranks> value{};
  play([&](const EpochWords& words, std::size_t rank, std::mt19937& random) {
    const auto fence = [&] {
      const std::uint64_t number = words.come_to_fence();
      for (int other = 0; other < words.ranks(); ++other) await([&] { return words.is_at_fence(other, number); });
    };
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      linger(random);
      value[rank] = round;
      fence();
      linger(random);
      for (const std::uint64_t theirs : value) EXPECT_EQ(theirs, round);
      fence();
    }
  });
}

// Each rank lets both others put a number into its memory, takes it out, and does so again.
TEST(EpochWordsThreads, Posts) {
  std::array<std::array<std::uint64_t, most_ranks>, most_ranks> from{};
  play([&](const EpochWords& words, std::size_t rank, std::mt19937& random) {
    const auto for_others = [&](const auto& f) {
      for (std::size_t other = 0; other < most_ranks; ++other)
        if (other != rank) f(other, static_cast<int>(other));
    };
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      for_others([&](std::size_t, int origin) { words.post(origin); });
      linger(random);
      for_others([&](std::size_t other, int target) {
        await([&] { return words.is_posted(target, round); });
        from[other][rank] = round + rank;
        words.complete(target);
      });
      for_others([&](std::size_t other, int origin) {
        await([&] { return words.is_complete(origin, round); });
        EXPECT_EQ(std::exchange(from[rank][other], 0), round + other);
      });
    }
  });
}

}  // namespace
}  // namespace crosslane::test::epochs
