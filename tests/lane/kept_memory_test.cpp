// PinnedPool: what is pinned and kept goes as far as room is wanted, and no further.
#include "gpu/machine.h"
#include "lane/pinned_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <vector>

namespace crosslane::test {
namespace {

constexpr std::size_t kib = 1024;

template <class Kind>
class KeptMemoryTest : public MachineTest<Kind> {
 protected:
  /// So much room, in which such blocks have been lent, and given back.
  void keep(std::size_t limit, std::initializer_list<std::size_t> sizes) {
    pool_.emplace([this]() -> const gpu::Driver& { return this->driver(); }, limit);
    std::vector<lane::HostBlock> lent;
    for (const std::size_t size : sizes) lent.push_back(pool_->lend(size));
  }
  lane::PinnedPool& pool() { return *pool_; }
  bool keeps(std::size_t size) { return pool_->lend_kept(this->context(), size).data() != nullptr; }

 private:
  std::optional<lane::PinnedPool> pool_;
};
TYPED_TEST_SUITE(KeptMemoryTest, Machines, MachineNames);

TYPED_TEST(KeptMemoryTest, TheLongestGoForRoom) {
  this->keep(1024 * kib, {512 * kib, 256 * kib, 128 * kib, 64 * kib});
  const auto first = this->pool().lend(256 * kib), second = this->pool().lend(256 * kib);
  EXPECT_FALSE(this->keeps(512 * kib));
  EXPECT_TRUE(this->keeps(128 * kib));
  EXPECT_TRUE(this->keeps(64 * kib));
}

TYPED_TEST(KeptMemoryTest, AllGoWhereAllIsWanted) {
  this->keep(1024 * kib, {512 * kib, 256 * kib, 128 * kib});
  const auto all = this->pool().lend(1024 * kib);
  EXPECT_NE(all.data(), nullptr);
  for (const std::size_t size : {512 * kib, 256 * kib, 128 * kib}) EXPECT_FALSE(this->keeps(size));
}

}  // namespace
}  // namespace crosslane::test
