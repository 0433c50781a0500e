// Which edges meet, as far as a rank can tell from what the MPI answers. It must not know collectives.
#include "team/neighbourhood.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace crosslane::team {
namespace {

constexpr int absent = -2;
constexpr EdgeCall call{NeighbourCall::alltoallv, CallForm::blocking};

using Pairs = std::vector<std::pair<int, std::size_t>>;

Pairs pairs(const std::vector<Neighbourhood::Edge>& edges) {
  Pairs result;
  for (const auto& edge : edges) result.emplace_back(edge.rank, edge.block);
  return result;
}

TEST(Neighbourhood, OrdersEdgesByRankWithoutAbsentOnes) {
  const std::vector<int> sources{3, absent, 1, 3};
  const std::vector<int> destinations{2, 0, absent, 2};
  const Neighbourhood here(sources, destinations, absent);
  EXPECT_EQ(pairs(here.out()), (Pairs{{0, 1}, {2, 0}, {2, 3}}));
  EXPECT_EQ(pairs(here.in(call)), (Pairs{{1, 2}, {3, 0}, {3, 3}}));
  EXPECT_FALSE(here.single_edges());
}

TEST(Neighbourhood, SeesSeveralEdgesEitherWay) {
  const std::vector<int> once{0, 1, absent, absent};
  const std::vector<int> twice{0, 1, 0};
  EXPECT_TRUE(Neighbourhood(once, once, absent).single_edges());
  EXPECT_FALSE(Neighbourhood(twice, once, absent).single_edges());
  EXPECT_FALSE(Neighbourhood(once, twice, absent).single_edges());
  EXPECT_TRUE(Neighbourhood({}, {}, absent).single_edges());
}

// Blocks 0, 2 and 3 come from rank 5: which came along its first edge to here, its second, its third?
TEST(Neighbourhood, LearnsWhichEdgesMeet) {
  const std::vector<int> sources{5, 4, 5, 5, absent};
  Neighbourhood here(sources, {}, absent);
  EXPECT_FALSE(here.matched(call));
  here.learn(call, std::vector<int>{2, 0, 0, 1, 7});
  EXPECT_TRUE(here.matched(call));
  EXPECT_EQ(pairs(here.in(call)), (Pairs{{4, 1}, {5, 2}, {5, 3}, {5, 0}}));
  // Of another form, or another procedure, nothing is known; an all-gather need not know.
  EXPECT_FALSE(here.matched({call.procedure, CallForm::nonblocking}));
  EXPECT_FALSE(here.matched({NeighbourCall::alltoallw, call.form}));
  EXPECT_EQ(pairs(here.in({NeighbourCall::gather, call.form})), (Pairs{{4, 1}, {5, 0}, {5, 2}, {5, 3}}));
}

TEST(Neighbourhood, TakesNoAnswerForOneThatIsNone) {
  for (const auto& wrong : {std::vector<int>{0, 0, 0}, {0, 2, 0}, {-1, 0, 0}, {0, 1, 1}}) {
    const std::vector<int> sources{5, 5, 4};
    Neighbourhood here(sources, {}, absent);
    here.learn(call, wrong);
    EXPECT_FALSE(here.matched(call));
  }
}

TEST(Neighbourhood, HasABitForEachCall) {
  std::uint32_t all = 0;
  for (const auto procedure : {NeighbourCall::alltoall, NeighbourCall::alltoallv, NeighbourCall::alltoallw}) {
    for (const auto form : {CallForm::blocking, CallForm::nonblocking, CallForm::persistent}) {
      EXPECT_EQ(all & Neighbourhood::bit({procedure, form}), 0U);
      all |= Neighbourhood::bit({procedure, form});
    }
  }
}

}  // namespace
}  // namespace crosslane::team
