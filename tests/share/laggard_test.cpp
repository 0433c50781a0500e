// A team that has to wait for a member which died long ago: no GPU is needed to find that out.
#include "base/error.h"
#include "engine/engine.h"
#include "share/board.h"
#include "share/segment.h"
#include "team/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace crosslane;

// Two ranks of a node.
struct Pair {
  Pair() {
    share::Shape shape{.ranks = 2};
    shape.board_bytes = share::Board::bytes_for(shape.ranks);
    share::Segment segment =
        share::Segment::create(share::Method::anonymous, share::Directory::bytes_for(shape), {1, 2});
    const share::Token token = segment.token();
    first.emplace(std::move(segment), shape, 0).join(0);
    other.emplace(share::Segment::open(token), shape, 1).join(1);
    first->see_device({1});
  }
  std::optional<share::Directory> first, other;
  mpi::Functions no_mpi{};
  engine::Engine engine{no_mpi, 0};
};

TEST(Laggard, ThatDiedIsNotWaitedForForEver) {
  Pair node;
  share::Board board(*node.first, 0), board_of_other(*node.other, 1);
  team::Team team(*node.first, board, node.engine, {1, 1}, {0, 1}, 0, false, std::nullopt);
  ASSERT_TRUE(board_of_other.join({1, 1}, 2, 1));
  const engine::Watch watch{.call = "MPI_Bcast"};
  for (std::uint64_t call = 1; call < share::TeamPlace::ring; ++call)
    ASSERT_EQ(team.enter(share::Verdict::staged, team::Pace::blocking, watch), share::Verdict::staged);
  node.other.reset();  // drops its mark, as the kernel does for a killed process
  for (int tries = 0; tries < 2; ++tries) {
    try {
      static_cast<void>(team.enter(share::Verdict::direct, team::Pace::blocking, watch));
      ADD_FAILURE() << "its verdict stands before a member has come to the ring's first call";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.error_class(), base::ErrorClass::other);
      EXPECT_NE(std::string(error.what()).find("rank 1 "), std::string::npos) << error.what();
    }
  }
}

TEST(Laggard, ThatLivesIsWaitedFor) {
  Pair node;
  share::Board board(*node.first, 0), board_of_other(*node.other, 1);
  team::Team team(*node.first, board, node.engine, {1, 1}, {0, 1}, 0, false, std::nullopt);
  const auto other = board_of_other.join({1, 1}, 2, 1);
  ASSERT_TRUE(other);
  const engine::Watch watch{.call = "MPI_Bcast"};
  for (std::uint64_t call = 1; call < share::TeamPlace::ring; ++call)
    ASSERT_EQ(team.enter(share::Verdict::staged, team::Pace::blocking, watch), share::Verdict::staged);
  std::atomic<bool> came{false};
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the system is asked meanwhile
    came = true;
    other->enter(1);
  });
  EXPECT_EQ(team.enter(share::Verdict::direct, team::Pace::blocking, watch), share::Verdict::staged);
  EXPECT_TRUE(came);
  late.join();
}

}  // namespace
