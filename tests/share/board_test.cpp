// The board of teams, with ranks as threads over one mapping, as ThreadSanitizer needs it: every call has one verdict, whoever comes first, and
// nobody goes direct while another is in MPI unasked.
#include "share/board.h"

#include "base/error.h"
#include "share/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace crosslane::share;

struct Node {
  explicit Node(int ranks) {
    Shape shape{.ranks = ranks};
    shape.board_bytes = Board::bytes_for(ranks);
    Segment first = Segment::create(Method::anonymous, Directory::bytes_for(shape), {1, 2});
    const Token token = first.token();
    directories.emplace_back(std::move(first), shape, 0);
    for (int rank = 1; rank < ranks; ++rank) directories.emplace_back(Segment::open(token), shape, rank);
    for (int rank = 0; rank < ranks; ++rank) boards.push_back(std::make_unique<Board>(directories.front(), rank));
  }
  std::vector<Directory> directories;
  std::vector<std::unique_ptr<Board>> boards;
};

// What team::Team::enter does, with the wait for laggards as a spin. `starts`: the call may not wait.
struct Comer {
  const Directory& directory;
  const TeamPlace& place;
  bool asks = false, everybody = false;
  std::uint64_t lapses = 0;
  int lapsed = 0;

  Verdict come(std::uint64_t sequence, bool starts, Verdict wish) {
    place.enter(sequence);
    if (!asks) {
      if (!place.whole() || !directory.device_seen() || (starts && place.laggard(sequence) >= 0))
        return Verdict::staged;
      place.ask_from(sequence);
      asks = true;
    } else if (starts && place.laggard(sequence) >= 0) {
      place.ask_no_more(sequence);
      asks = place.laggard(sequence) < 0;
      ++lapsed;
      if (!asks) return Verdict::staged;
      place.ask_from(sequence);
    }
    while (place.laggard(sequence) >= 0) std::this_thread::yield();
    if (const std::uint64_t now = place.lapses(); !everybody || now != lapses) {
      lapses = now;
      everybody = place.everybody_asks(sequence);
    }
    const bool direct = wish == Verdict::direct && (everybody || !place.somebody_unasked(sequence));
    return place.claim(sequence, direct ? Verdict::direct : Verdict::staged);
  }
};

TEST(Board, EveryCallHasOneVerdict) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int ranks = 4;
  constexpr std::uint64_t calls = 3'000;
  for (int round = 0; round < 8; ++round) {
    Node node(ranks);
    std::vector<std::vector<Verdict>> verdicts(ranks);
    std::vector<std::thread> threads;
    std::atomic<int> started{0}, lapsed{0};
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::mt19937 random(seed + static_cast<unsigned>(100 * round + rank));
        const auto r = static_cast<std::size_t>(rank);
        Directory& directory = node.directories[r];
        const auto place = node.boards[r]->join({5, 6}, ranks, rank);
        Comer comer{directory, *place};
        // In even rounds everybody knows of a GPU from the start, in odd ones some rank meets its first in mid-course, while the others
        // are anywhere.
        const bool mine = rank == round % ranks;
        if (round % 2 == 0 && mine) directory.see_device({1});
        ++started;
        while (started < ranks) std::this_thread::yield();
        for (std::uint64_t call = 1; call <= calls; ++call) {
          if (mine && call == 200) directory.see_device({1});
          const Verdict wish = random() % 2 == 0 ? Verdict::direct : Verdict::staged;
          verdicts[r].push_back(comer.come(call, random() % 4 == 0, wish));
          if (random() % 64 == 0) std::this_thread::yield();
          // Who sleeps is far behind soon, and the others' calls that may not wait lapse.
          if (random() % 2048 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
        lapsed += comer.lapsed;
        node.boards[r]->leave(*place);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::size_t direct = 0;
    for (std::size_t call = 0; call < calls; ++call) {
      for (int rank = 1; rank < ranks; ++rank)
        ASSERT_EQ(verdicts[0][call], verdicts[static_cast<std::size_t>(rank)][call]) << "call " << call + 1;
      direct += verdicts[0][call] == Verdict::direct ? 1 : 0;
    }
    if (round % 2 == 0) {
      EXPECT_GT(direct, calls / 16) << lapsed << " lapses; " << "direct calls must be the rule once all ask";
    }
  }
}

TEST(Board, ArrivalsAreReadWhole) {
  constexpr int ranks = 3;
  constexpr std::uint64_t calls = 2'000;
  Node node(ranks);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto place = node.boards[static_cast<std::size_t>(rank)]->join({7, 8}, ranks, rank);
      for (std::uint64_t direct = 1; direct <= calls; ++direct) {
        Arrival& own = place->own_arrival(direct);
        for (Passage& passage : place->own_passages(direct))
          passage = {direct, 2 * direct, static_cast<std::uint64_t>(rank)};
        own.send.id = direct * 10 + static_cast<std::uint64_t>(rank);
        own.facts.fill(direct);
        const auto excuse_of = [direct](int member) {
          return static_cast<Excuse>((direct + static_cast<std::uint64_t>(member)) % 4);
        };
        place->arrive(direct, excuse_of(rank));
        for (int member = 0; member < ranks; ++member) {
          while (place->arrived(member).load(std::memory_order_acquire) < direct) std::this_thread::yield();
          const Arrival& theirs = place->arrival(member, direct);
          const Passage& passage = place->passages(member, direct).back();
          if (passage.sends != direct || passage.receives != 2 * direct ||
              passage.place != static_cast<std::uint64_t>(member) || place->excuse(member, direct) != excuse_of(member))
            ++wrong;
          if (theirs.send.id != direct * 10 + static_cast<std::uint64_t>(member) || theirs.facts[7] != direct) ++wrong;
        }
      }
      node.boards[static_cast<std::size_t>(rank)]->leave(*place);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Three teams of different members on two GPUs, each rank with a thread for each of its teams: in every rank calls start in the order of
// their turns, the turns are the same for all members, and no GPU ever has more blocks than seats unless one call alone has them.
TEST(Board, TurnsAreOneOrderAndSeatsAreKept) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int ranks = 4;
  constexpr std::uint32_t all = 8;
  constexpr std::uint64_t calls = 400;
  const std::vector<std::vector<int>> teams{{0, 1, 2, 3}, {3, 1, 0}, {2, 0}};
  Node node(ranks);
  std::array<int, ranks> seats{};
  for (int rank = 0; rank < ranks; ++rank) {
    Uuid gpu{};
    gpu[0] = static_cast<decltype(gpu)::value_type>(1 + rank / 2);
    seats[static_cast<std::size_t>(rank)] = node.boards[static_cast<std::size_t>(rank)]->take_seats(gpu, all);
  }
  ASSERT_EQ(seats, (std::array<int, ranks>{0, 0, 2, 2}));
  std::vector<std::array<std::atomic<std::uint64_t>, calls + 1>> turns(teams.size());
  std::array<std::atomic<std::uint32_t>, 2> on_gpu{};  // blocks, as the test counts them
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t team = 0; team < teams.size(); ++team) {
    std::vector<int> at;
    for (const int rank : teams[team]) at.push_back(seats[static_cast<std::size_t>(rank)]);
    for (std::size_t me = 0; me < teams[team].size(); ++me) {
      threads.emplace_back([&, team, me, at] {
        const int members = static_cast<int>(teams[team].size());
        const int rank = teams[team][me];
        Board& board = *node.boards[static_cast<std::size_t>(rank)];
        const auto place = board.join({team + 1, 9}, members, static_cast<int>(me));
        std::mt19937 own(seed + static_cast<unsigned>(100 * team + me));
        std::uint64_t last = 0;
        for (std::uint64_t direct = 1; direct <= calls; ++direct) {
          // The same on all members; some want more than there is.
          const std::uint32_t blocks = 1 + static_cast<std::uint32_t>((direct * 7 + team * 3) % 5);
          place->arrive(direct);
          for (int member = 0; member < members; ++member)
            while (place->arrived(member).load(std::memory_order_acquire) < direct) std::this_thread::yield();
          while (!board.give_turn(*place, direct, at, blocks)) std::this_thread::yield();
          const std::uint64_t turn = *place->turn(direct);
          if (turn <= last) ++wrong;
          last = turn;
          std::uint64_t others = 0;
          if (!turns[team][direct].compare_exchange_strong(others, turn) && others != turn) ++wrong;
          const auto gpu = static_cast<std::size_t>(rank / 2);
          const std::uint32_t mine_here = static_cast<std::uint32_t>(std::ranges::count(at, at[me])) * blocks;
          const std::uint32_t used = on_gpu[gpu].fetch_add(blocks) + blocks;
          if (used > all && used > mine_here) ++wrong;
          if (own() % 8 == 0) std::this_thread::yield();
          on_gpu[gpu].fetch_sub(blocks);
          place->finish(direct);
        }
        board.leave(*place);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  std::vector<std::uint64_t> given;
  for (const auto& of_team : turns)
    for (std::uint64_t direct = 1; direct <= calls; ++direct) given.push_back(of_team[direct]);
  std::ranges::sort(given);
  for (std::size_t turn = 0; turn < given.size(); ++turn) ASSERT_EQ(given[turn], turn + 1) << "each turn is given once";
}

TEST(Board, TellsTheFewestSeatsOfSomeGpus) {
  Node node(4);
  const std::array<std::uint8_t, 4> gpu{1, 2, 1, 3};
  const std::array<std::uint32_t, 4> all{264, 112, 999, 216};  // of the third the GPU's first counts
  for (std::size_t rank = 0; rank < gpu.size(); ++rank) {
    Uuid uuid{};
    uuid[0] = static_cast<decltype(uuid)::value_type>(gpu[rank]);
    node.boards[rank]->own_window().seats = node.boards[rank]->take_seats(uuid, all[rank]);
  }
  EXPECT_EQ(node.boards[3]->fewest_seats(std::array{0, 2}), 264U);
  EXPECT_EQ(node.boards[0]->fewest_seats(std::array{3, 2}), 216U);
  EXPECT_EQ(node.boards[1]->fewest_seats(std::array{0, 1, 2, 3}), 112U);
}

TEST(Board, LinesStayWholeAmongGpusOfTheirOwnWithSuchLinks) {
  Node node(4);
  const std::array<std::uint8_t, 4> gpu{1, 2, 1, 3};
  for (std::size_t rank = 0; rank < gpu.size(); ++rank) {
    WindowRecord& record = node.boards[rank]->own_window();
    record.gpu[0] = static_cast<Uuid::value_type>(gpu[rank]);
    record.links.on_switch = rank == 3 ? 0 : 1;
  }
  EXPECT_TRUE(node.boards[3]->keep_lines_whole(std::array{0, 1}));
  EXPECT_TRUE(node.boards[0]->keep_lines_whole(std::array{2, 1}));
  EXPECT_FALSE(node.boards[0]->keep_lines_whole(std::array{0, 1, 2})) << "two share one";
  EXPECT_FALSE(node.boards[0]->keep_lines_whole(std::array{1, 3})) << "one has other links";
}

// Two pairs that nothing but a bus joins, of which each rank sees its own.
TEST(Board, LinesStayWholeBetweenGpusThatLinksJoin) {
  Node node(4);
  const auto uuid = [](std::size_t gpu) {
    Uuid made{};
    made.back() = static_cast<Uuid::value_type>(gpu + 1);
    return made;
  };
  for (std::size_t rank = 0; rank < 4; ++rank) {
    WindowRecord& record = node.boards[rank]->own_window();
    record.gpu = uuid(rank);
    // Rank 2 sees nobody but itself: rank 3 knows of their link.
    if (rank != 2) record.links.to[record.links.joined++] = uuid(rank ^ 1);
  }
  EXPECT_TRUE(node.boards[2]->keep_lines_whole(std::array{0, 1}));
  EXPECT_TRUE(node.boards[2]->keep_lines_whole(std::array{2, 3}));
  EXPECT_TRUE(node.boards[0]->keep_lines_whole(std::array{3, 2}));
  EXPECT_FALSE(node.boards[0]->keep_lines_whole(std::array{0, 2})) << "each has links, but to others";
  EXPECT_FALSE(node.boards[0]->keep_lines_whole(std::array{0, 1, 2, 3}));
  EXPECT_FALSE(node.boards[0]->keep_lines_whole(std::array{1, 0, 3}));
}

TEST(Board, SeatsThatAreSetAsideAreNotGiven) {
  constexpr std::uint32_t all = 8;
  Node node(3);
  const std::array<std::uint8_t, 3> gpu{1, 2, 1};
  std::array<int, 3> at{};
  for (std::size_t rank = 0; rank < gpu.size(); ++rank) {
    Uuid uuid{};
    uuid[0] = static_cast<decltype(uuid)::value_type>(gpu[rank]);
    node.boards[rank]->own_window().seats = at[rank] = node.boards[rank]->take_seats(uuid, all);
  }
  const std::array<int, 2> seats{at[0], at[1]};
  std::vector<TeamPlace> places;
  for (std::uint64_t key = 1; key <= 3; ++key) {
    ASSERT_TRUE(node.boards[1]->join({key, 1}, 2, 1));
    places.push_back(*node.boards[0]->join({key, 1}, 2, 0));
  }
  Board& board = *node.boards[0];
  node.boards[2]->set_seats_aside(4);  // of the first rank's GPU
  EXPECT_TRUE(board.give_turn(places[0], 1, seats, 6)) << "alone it may have more than is left";
  EXPECT_FALSE(board.give_turn(places[1], 1, seats, 1));
  node.boards[2]->take_seats_back(3);
  EXPECT_TRUE(board.give_turn(places[1], 1, seats, 1));
  EXPECT_FALSE(board.give_turn(places[2], 1, seats, 1));
  board.forgo_turn(places[2], 1);
  // One of all ranks of a GPU.
  EXPECT_TRUE(node.boards[0]->reserve_half());
  EXPECT_TRUE(node.boards[1]->reserve_half());
  EXPECT_FALSE(node.boards[2]->reserve_half());
  node.boards[0]->give_half_back();
  EXPECT_TRUE(node.boards[2]->reserve_half());
}

TEST(Board, WhoIsFirstInLineIsNotPassed) {
  constexpr std::uint32_t all = 4;
  Node node(2);
  const std::array<int, 2> at{node.boards[0]->take_seats({1}, all), node.boards[1]->take_seats({2}, all)};
  std::vector<TeamPlace> places, others;
  for (std::uint64_t key = 1; key <= 3; ++key) {
    others.push_back(*node.boards[1]->join({key, 1}, 2, 1));
    places.push_back(*node.boards[0]->join({key, 1}, 2, 0));
  }
  Board& board = *node.boards[0];
  EXPECT_FALSE(places[0].turn(1));
  ASSERT_TRUE(board.give_turn(places[0], 1, at, 3));
  EXPECT_FALSE(board.give_turn(places[1], 1, at, 9)) << "more than there is waits until it is alone";
  EXPECT_FALSE(board.give_turn(places[2], 1, at, 1)) << "it would fit, but would pass the first in line";
  places[0].finish(1);
  EXPECT_FALSE(board.give_turn(places[1], 1, at, 9)) << "the other member's kernels still run";
  others[0].finish(1);
  ASSERT_TRUE(board.give_turn(places[1], 1, at, 9));
  EXPECT_EQ(places[1].turn(1), 2U);
  EXPECT_FALSE(board.give_turn(places[2], 1, at, 1));
  board.forgo_turn(places[0], 1);
  EXPECT_FALSE(board.give_turn(places[0], 2, at, 4)) << "the third team is first now";
  board.forgo_turn(places[2], 1);
  EXPECT_FALSE(board.give_turn(places[0], 2, at, 4)) << "no seats";
  for (const auto& each : {places[1], others[1]}) each.finish(1);
  EXPECT_TRUE(board.give_turn(places[0], 2, at, 4));
}

// Whether it has come true within ten seconds.
template <class Ask>
bool soon(Ask ask) {
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!ask()) {
    if (std::chrono::steady_clock::now() >= late) return false;
    std::this_thread::yield();
  }
  return true;
}

// Three ranks on one GPU of four seats; the last one, which dies, is with the first in a team of two, and so is the second.
struct Mourners {
  Mourners() {
    for (Directory& directory : node.directories) directory.join(directory.local_rank());
    for (auto& board : node.boards) seats.push_back(board->take_seats({1}, 4));
  }
  void die() { node.directories.pop_back(); }  // drops its mark, as the kernel does for a killed process
  [[nodiscard]] bool turn(int rank, const TeamPlace& place, std::uint64_t direct) {
    return node.boards[static_cast<std::size_t>(rank)]->give_turn(place, direct, std::span(seats).first(2), 2);
  }
  Node node{3};
  std::vector<int> seats;
  const TeamPlace with_dead = *node.boards[0]->join({1, 1}, 2, 0), dead = *node.boards[2]->join({1, 1}, 2, 1);
  const TeamPlace first = *node.boards[0]->join({2, 1}, 2, 0), second = *node.boards[1]->join({2, 1}, 2, 1);
};

TEST(Board, WhoDiesGivesItsSeatsToOthers) {
  Mourners three;
  ASSERT_TRUE(three.turn(2, three.dead, 1));
  three.with_dead.finish(1);
  EXPECT_FALSE(three.turn(0, three.first, 1)) << "it lives, and may have kernels that run";
  three.die();
  EXPECT_TRUE(soon([&] { return three.turn(0, three.first, 1); }));
  for (const auto& each : {three.first, three.second}) each.finish(1);
  EXPECT_TRUE(three.turn(1, three.second, 2)) << "once found is enough";
}

TEST(Board, SeatsOfTheDeadOnesTeamAreKeptByThoseThatLive) {
  Mourners three;
  ASSERT_TRUE(three.turn(2, three.dead, 1));
  three.die();
  EXPECT_FALSE(three.turn(1, three.second, 1)) << "the first one's kernels may wait for the dead one's";
  three.with_dead.finish(1);
  EXPECT_TRUE(three.turn(0, three.first, 1)) << "the dead one was found before";
}

TEST(Board, ADeadFirstInLineIsPassed) {
  Mourners three;
  ASSERT_TRUE(three.turn(0, three.first, 1));
  three.node.boards[0]->forgo_turn(three.with_dead, 1);
  ASSERT_FALSE(three.turn(2, three.dead, 1));
  for (const auto& each : {three.first, three.second}) each.finish(1);
  three.die();
  EXPECT_FALSE(three.turn(1, three.second, 2)) << "another one is first, of whose members one lives, and may ask yet";
  three.with_dead.finish(1);
  EXPECT_TRUE(soon([&] { return three.turn(1, three.second, 2); }));
}

TEST(Board, PlacesAreGivenBackAndMadeAnew) {
  Node node(2);
  for (std::uint64_t round = 1; round <= 3 * Board::most_teams; ++round) {
    const auto one = node.boards[0]->join({round, 0}, 2, 0);
    ASSERT_TRUE(one);
    EXPECT_FALSE(one->whole());
    EXPECT_EQ(one->ready(0), Ready::no);
    const auto other = node.boards[1]->join({round, 0}, 2, 1);
    ASSERT_TRUE(other);
    EXPECT_TRUE(one->whole());
    one->enter(9);
    one->show_ready(Ready::mapped);
    EXPECT_EQ(other->ready(0), Ready::mapped);
    node.boards[0]->leave(*one);
    node.boards[1]->leave(*other);
  }
}

// The lock is the table's first word: 1 + the rank that holds it.
std::atomic<std::uint32_t>& lock_of(const Node& node) {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(node.directories.front().board().data());
}

TEST(Board, WhoHoldsTheLockIsWaitedForHoweverLongItIsPutAside) {
  Node node(2);
  for (Directory& directory : node.directories) directory.join(directory.local_rank());
  lock_of(node) = 2;
  std::atomic<bool> given_back{false};
  std::thread waiter([&] {
    EXPECT_TRUE(node.boards[0]->join({1, 1}, 2, 0));
    EXPECT_TRUE(given_back);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  given_back = true;
  lock_of(node) = 0;
  waiter.join();
  EXPECT_EQ(lock_of(node), 0U);
}

TEST(Board, ALockWhoseHolderDiedIsNotWaitedFor) {
  Node node(2);
  for (Directory& directory : node.directories) directory.join(directory.local_rank());
  const auto place = node.boards[0]->join({1, 1}, 2, 0);
  ASSERT_TRUE(place);
  node.directories.pop_back();  // drops its mark, as the kernel does for a killed process
  lock_of(node) = 2;
  EXPECT_FALSE(node.boards[0]->join({2, 2}, 2, 0)) << "what is in the table nobody knows";
  EXPECT_THROW(static_cast<void>(node.boards[0]->take_seats({1}, 4)), crosslane::base::Error);
  EXPECT_THROW(static_cast<void>(node.boards[0]->give_turn(*place, 1, std::array{0, 0}, 1)), crosslane::base::Error);
  node.boards[0]->leave(*place);
  EXPECT_EQ(lock_of(node), 2U);
}

TEST(Board, WhereThereIsNoRoomNobodyHasAPlace) {
  Node node(2);
  std::vector<TeamPlace> places;
  for (std::uint64_t team = 0; team < Board::most_teams; ++team) {
    const auto place = node.boards[0]->join({team, 1}, 2, 0);
    ASSERT_TRUE(place);
    places.push_back(*place);
  }
  EXPECT_FALSE(node.boards[0]->join({999, 1}, 2, 0));
  EXPECT_TRUE(node.boards[1]->join({0, 1}, 2, 1)) << "teams that are there can still be joined";
  node.boards[0]->leave(places.back());
  EXPECT_TRUE(node.boards[0]->join({999, 1}, 2, 0));
  EXPECT_FALSE(node.boards[0]->join({1, 1}, 3, 0)) << "more members than ranks";
}

TEST(Board, TheRingHoldsBackWhoIsFarAhead) {
  Node node(2);
  const auto fast = *node.boards[0]->join({3, 3}, 2, 0);
  const auto slow = *node.boards[1]->join({3, 3}, 2, 1);
  slow.enter(1);
  slow.ask_from(1);
  EXPECT_EQ(slow.claim(1, Verdict::staged), Verdict::staged);
  std::uint64_t call = 1;
  for (; call < 1000; ++call) {
    fast.enter(call);
    fast.ask_from(1);
    if (fast.laggard(call) >= 0) break;
    EXPECT_EQ(fast.claim(call, Verdict::staged), Verdict::staged);
  }
  EXPECT_EQ(call, TeamPlace::ring + 1) << "the slow one is at call 1, whose verdict must stand";
  EXPECT_EQ(fast.laggard(call), 1);
  slow.enter(2);
  EXPECT_EQ(fast.laggard(call), -1);
}

}  // namespace
