// The directory: its parts do not overlap, its states, and the store-buffer pattern of device_seen with ranks as threads.
#include "share/directory.h"
#include "base/error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace crosslane::share;

/// A directory for each rank, over mappings of one segment.
std::vector<Directory> directories(const Shape& shape) {
  std::vector<Directory> all;
  Segment first = Segment::create(Method::anonymous, Directory::bytes_for(shape), {1, 2});
  const Token token = first.token();
  all.emplace_back(std::move(first), shape, 0);
  for (int rank = 1; rank < shape.ranks; ++rank) all.emplace_back(Segment::open(token), shape, rank);
  return all;
}

TEST(Directory, PartsDoNotOverlapAndAreTheSameForAll) {
  const Shape shape{.ranks = 3, .lines_per_rank = 5, .lines_per_pair = 2};
  auto all = directories(shape);
  std::uint64_t number = 0;
  for (int from = 0; from < 3; ++from) {
    for (Line& line : all[0].lines(from)) line.word = ++number;
    for (int to = 0; to < 3; ++to)
      for (Line& line : all[0].lines(from, to)) line.word = ++number;
  }
  EXPECT_EQ(number, 3U * 5 + 9U * 2);
  for (Directory& mine : all) mine.join(100 + mine.local_rank());
  all[1].see_device({1, 2, 3});
  for (Directory& mine : all) mine.begin_wait();
  number = 0;
  for (int from = 0; from < 3; ++from) {
    for (const Line& line : all[2].lines(from)) ASSERT_EQ(line.word, ++number);
    for (int to = 0; to < 3; ++to)
      for (const Line& line : all[2].lines(from, to)) ASSERT_EQ(line.word, ++number);
    EXPECT_EQ(all[2].record(from).world_rank, 100 + from);
    EXPECT_EQ(all[2].record(from).waits, 1U);
  }
  const auto memory = all[2].segment().memory();
  const auto* const last = reinterpret_cast<const std::byte*>(&all[2].lines(2, 2).back() + 1);
  EXPECT_EQ(last, memory.data() + memory.size());
}

TEST(Directory, PresenceAndDevices) {
  auto all = directories({.ranks = 2});
  EXPECT_EQ(all[0].record(1).presence, Presence::absent);
  for (Directory& mine : all) mine.join(mine.local_rank());
  EXPECT_EQ(all[0].record(1).presence, Presence::joined);
  EXPECT_TRUE(all[0].alive(1));
  EXPECT_FALSE(all[0].device_seen());
  all[1].see_device({9});
  EXPECT_TRUE(all[0].device_seen());
  EXPECT_EQ(all[0].record(1).device_seen, 1U);
  EXPECT_EQ(all[0].record(0).device_seen, 0U);
  EXPECT_EQ(all[0].record(1).gpu_uuid, Uuid{9});
  all[1].leave();
  all.pop_back();
  EXPECT_EQ(all[0].record(1).presence, Presence::left);
  EXPECT_TRUE(all[0].alive(1)) << "it left, it did not die";
}

TEST(Directory, ARankThatEndsWithoutLeavingIsDead) {
  auto all = directories({.ranks = 2});
  for (Directory& mine : all) mine.join(mine.local_rank());
  all.pop_back();  // drops its mark, as the kernel does for a killed process
  EXPECT_FALSE(all[0].alive(1));
}

TEST(Directory, TellsOnceOnlyTheDeadHaveNotReceived) {
  auto all = directories({.ranks = 4});
  for (Directory& mine : all) mine.join(mine.local_rank());
  all[0].have_received();
  all[3].have_received();
  all.pop_back();  // it dies all the same
  EXPECT_FALSE(all[0].alive(3));
  EXPECT_FALSE(all[0].only_dead()) << "others have not";
  all[1].have_received();
  EXPECT_FALSE(all[0].only_dead());
  all[2].have_received();
  EXPECT_EQ(all[0].only_dead(), 3);
  all[2].leave();
  all.pop_back();
  EXPECT_EQ(all[0].only_dead(), 3) << "who has left has received";
}

TEST(Directory, NobodyIsDeadWhereAllHaveReceived) {
  auto all = directories({.ranks = 2});
  for (Directory& mine : all) {
    mine.join(mine.local_rank());
    mine.have_received();
  }
  EXPECT_FALSE(all[0].only_dead());
}

TEST(Directory, TooSmallASegmentIsRefused) {
  EXPECT_THROW(Directory(Segment::unshared(64), {.ranks = 1}, 0), crosslane::base::Error);
}

// One rank publishes a host record and asks for the flag; the other sets the flag and looks for records. Never may both
// miss each other. Removing either fence makes this fail within a run on x86.
TEST(Directory, PublishAndAskNeverMissesSetAndLook) {
  constexpr std::uint64_t rounds = 20'000;
  std::atomic<std::uint64_t> arrived{0};
  std::uint64_t missed = 0;
  for (std::uint64_t batch = 0; batch < rounds / 100; ++batch) {
    std::vector<std::vector<Directory>> fresh;
    for (int i = 0; i < 100; ++i) fresh.push_back(directories({.ranks = 2, .lines_per_rank = 1, .lines_per_pair = 0}));
    std::vector<char> asked(100);
    std::vector<char> looked(100);
    arrived = 0;
    // Both leave together, as nearly as spinning does it; a yield now and then, since cores may be fewer than threads.
    const auto together = [&](std::uint64_t step) {
      arrived.fetch_add(1);
      for (int spin = 0; arrived.load() < 2 * (step + 1); ++spin)
        if (spin > 1000) std::this_thread::yield();
    };
    std::thread publisher{[&] {
      for (std::uint64_t i = 0; i < 100; ++i) {
        Directory& mine = fresh[i][0];
        together(i);
        mine.lines(0)[0].word.store(1, std::memory_order_relaxed);
        asked[i] = mine.device_seen() ? 1 : 0;
      }
    }};
    for (std::uint64_t i = 0; i < 100; ++i) {
      Directory& mine = fresh[i][1];
      together(i);
      mine.see_device({});
      looked[i] = mine.lines(0)[0].word.load(std::memory_order_relaxed) == 1 ? 1 : 0;
    }
    publisher.join();
    for (std::size_t i = 0; i < 100; ++i)
      if (asked[i] == 0 && looked[i] == 0) ++missed;
  }
  EXPECT_EQ(missed, 0U);
}

}  // namespace
