// PinnedPool: ordinary memory that nobody used is lent again, whatever lengths a program goes through.
#include "lane/pinned_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

namespace crosslane::lane {
namespace {

class PinnedPoolTest : public testing::Test {
 protected:
  using Addresses = std::set<const std::byte*>;
  /// So many at a time, given back.
  Addresses lend(std::size_t blocks, std::size_t bytes) {
    std::vector<HostBlock> lent;
    Addresses seen;
    for (std::size_t i = 0; i < blocks; ++i) {
      lent.push_back(pool_.lend_ordinary(bytes));
      EXPECT_GE(lent.back().size(), bytes);
      seen.insert(lent.back().data());
    }
    EXPECT_EQ(seen.size(), blocks);
    return seen;
  }

  PinnedPool pool_{[]() -> const gpu::Driver& { throw std::logic_error("ordinary memory needs no driver"); }, 0};
};

TEST_F(PinnedPoolTest, LongBlocksAreKeptThoughManyShortOnesAre) {
  for (std::size_t bytes = 4096; bytes < std::size_t{4} << 20; bytes *= 2) lend(64, bytes);
  const Addresses first = lend(64, std::size_t{16} << 20);
  // Would be where those were, had they been given back.
  std::vector<std::unique_ptr<std::byte[]>> others;
  for (int i = 0; i < 64; ++i) others.emplace_back(new std::byte[std::size_t{16} << 20]);
  EXPECT_EQ(lend(64, std::size_t{16} << 20), first);
}

TEST_F(PinnedPoolTest, ALongOneServesForShortOnes) {
  const Addresses first = lend(8, std::size_t{16} << 20);
  EXPECT_EQ(lend(8, 100), first);
  EXPECT_EQ(lend(8, std::size_t{16} << 20), first);
}

}  // namespace
}  // namespace crosslane::lane
